// A limit on how often something is said to one source: token buckets by hash, so that memory is bounded whoever asks.

const BUCKETS = 256

export interface RateLimitOptions {
  /** Tokens that come back per second, for one source. */
  readonly perSecond: number
  /** Tokens that one source may spend at once. */
  readonly burst: number
}

export class RateLimit {
  readonly #options: RateLimitOptions
  readonly #tokens: Float64Array
  readonly #refilledAtMs: Float64Array

  constructor(options: RateLimitOptions) {
    this.#options = options
    this.#tokens = new Float64Array(BUCKETS).fill(options.burst)
    this.#refilledAtMs = new Float64Array(BUCKETS)
  }

  /**
   * Spends a token of the source with that hash (any integer), if it has one. Sources that share a bucket share tokens.
   */
  take(hash: number, nowMs: number): boolean {
    const bucket = Math.abs(hash) % BUCKETS
    const { perSecond, burst } = this.#options
    const refill = ((nowMs - this.#refilledAtMs[bucket]!) * perSecond) / 1000
    const tokens = Math.min(burst, this.#tokens[bucket]! + refill)
    this.#refilledAtMs[bucket] = nowMs
    this.#tokens[bucket] = tokens < 1 ? tokens : tokens - 1
    return tokens >= 1
  }
}
