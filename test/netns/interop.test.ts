// Ours and kernel VXLAN hosts in one network, a diagonal of the whole matrix, which test/long runs.
import { DIRECTIONS, describeInterop } from '../support/interop.ts'

const [toKernel, fromKernel, , , kernelToOther] = DIRECTIONS

describeInterop({ underlay: 'veth', udpChecksum: true, directions: [fromKernel], seconds: 1 })
describeInterop({ underlay: 'uso', udpChecksum: false, directions: [kernelToOther], seconds: 1 })
describeInterop({ underlay: 'wire', udpChecksum: true, directions: [toKernel], seconds: 1 })
describeInterop({ family: 6, underlay: 'veth', udpChecksum: false, directions: [toKernel, kernelToOther], seconds: 1 })
describeInterop({ family: 6, underlay: 'wire', udpChecksum: true, directions: [fromKernel], seconds: 1 })
