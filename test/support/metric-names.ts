// The metrics that are promised to operators; docs/operations.md, the alert rules and the dashboard must agree.
export const METRIC_NAMES: readonly string[] = [
  'build_info',
  'packets_total',
  'packet_bytes_total',
  'dropped_packets_total',
  'io_calls_total',
  'batch_packets',
  'socket_dropped_datagrams_total',
  'forwarding_entries',
  'forwarding_generation',
  'lease_expiry_timestamp_seconds',
  'lease_conflicts',
  'store_last_success_timestamp_seconds',
  'store_requests_total',
  'peer_last_receive_timestamp_seconds',
  'worker_restarts_total',
  'trace_lost_records_total',
].map((name) => `flannelette_${name}`)
