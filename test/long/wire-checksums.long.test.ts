// A hundred thousand frames of a busy host, every checksum verified by tshark.
import { describeWireChecksums } from '../support/wire-checksums.ts'

describeWireChecksums({ frames: 100_000, family: 4 })
describeWireChecksums({ frames: 100_000, family: 6 })
