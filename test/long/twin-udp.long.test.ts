// Ten million mutated frames: the engine and its slow twin agree on every packet, drop and count (udp).
import { twinParts } from '../support/twin-parts.ts'

twinParts('udp')
