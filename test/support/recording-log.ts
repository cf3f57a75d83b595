// A log that keeps its lines for the test to look at.
import type { Log, LogFields, LogLevel } from '../../src/log.ts'

export interface LogLine {
  readonly level: LogLevel
  readonly event: string
  readonly message: string
  readonly fields: LogFields
}

export class RecordingLog implements Log {
  readonly lines: LogLine[] = []

  debug(event: string, message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'debug', event, message, fields })
  }

  info(event: string, message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'info', event, message, fields })
  }

  warn(event: string, message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'warn', event, message, fields })
  }

  error(event: string, message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'error', event, message, fields })
  }

  of(event: string): LogLine[] {
    return this.lines.filter((line) => line.event === event)
  }
}
