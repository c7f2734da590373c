import { ISignal, Signal } from '@lumino/signaling';
import { ENDED, ISocket, LastingSocket } from './socket';
import { Connection, IProgress, IRun } from './tokens';

/** A piece of the log; `at` is the number of log bytes before it. */
export interface ILogChunk {
  at: number;
  bytes: Uint8Array;
}

/** Numbers that the run reported at one moment. */
export interface IMetrics {
  n: number;
  time: number;
  step: number | null;
  values: { [name: string]: number };
}

/** Where a reader is: what to ask for after a lost connection. */
export interface IPosition {
  attempt: number | null;
  /** Number of the last record received, 0 for none. */
  after: number;
}

type Message =
  | { type: 'hello'; attempt: number; size: number; start: number; ranks: number[] }
  | { type: 'log'; n: number; at: number; len: number }
  | { type: 'gap'; n: number; at: number; bytes: number }
  | ({ type: 'metrics' } & IMetrics)
  | { type: 'run'; run: IRun }
  | { type: 'stage'; n: number; stage: string }
  | ({ type: 'progress'; n?: number } & IProgress)
  | { type: 'end'; attempt: number; size: number };

/**
 * The log and events of one rank of a run, each byte once and in order, however often the
 * connection breaks.
 *
 * The server numbers records; after a break we ask for those after the last we had. Log bytes
 * also know their place, so a piece that was had already is cut off, and a hole is announced.
 */
export class LogStream {
  constructor(options: LogStream.IOptions) {
    this._rank = options.rank;
    this._socket = new LastingSocket({
      open: () => options.open({ attempt: this._attempt, after: this._after }, this._rank),
      onMessage: data => this._onData(data),
      onState: state => this._setConnection(state),
      onEnd: code => {
        this._setConnection(code === ENDED ? 'connected' : 'lost');
        this._finished.emit(code);
      }
    });
  }

  /** Log bytes, in order. */
  get chunk(): ISignal<this, ILogChunk> {
    return this._chunk;
  }

  /** Log bytes that the cluster lost, or that we have to ask for again. */
  get gap(): ISignal<this, { at: number; bytes: number; lost: boolean }> {
    return this._gap;
  }

  get metrics(): ISignal<this, IMetrics> {
    return this._metrics;
  }

  get run(): ISignal<this, IRun> {
    return this._run;
  }

  /** Another attempt begins: what comes from now on is a new log. */
  get attempted(): ISignal<this, { attempt: number; start: number; size: number }> {
    return this._attempted;
  }

  get connectionChanged(): ISignal<this, Connection> {
    return this._connectionChanged;
  }

  /** All was received (`ENDED`), or the server refuses to give it. */
  get finished(): ISignal<this, number> {
    return this._finished;
  }

  get attempt(): number | null {
    return this._attempt;
  }

  get ranks(): readonly number[] {
    return this._ranks;
  }

  /** Number of log bytes before the next. */
  get position(): number {
    return this._at ?? 0;
  }

  get connection(): Connection {
    return this._connection;
  }

  retry(): void {
    this._socket.retry();
  }

  dispose(): void {
    this._socket.dispose();
    Signal.clearData(this);
  }

  private _onData(data: unknown): void {
    if (data instanceof ArrayBuffer) {
      this._onBytes(new Uint8Array(data));
      return;
    }
    const message = JSON.parse(String(data)) as Message;
    switch (message.type) {
      case 'hello':
        this._onHello(message);
        break;
      case 'log':
        this._pending = message;
        break;
      case 'gap':
        this._after = message.n;
        this._at = message.at + message.bytes;
        this._gap.emit({ at: message.at, bytes: message.bytes, lost: true });
        break;
      case 'metrics':
        if (message.n > this._after) {
          this._after = message.n;
          this._metrics.emit(message);
        }
        break;
      case 'run':
        this._run.emit(message.run);
        break;
      default:
        break;
    }
  }

  private _onHello(message: {
    attempt: number;
    start: number;
    size: number;
    ranks: number[];
  }): void {
    this._ranks = message.ranks;
    if (this._attempt !== message.attempt) {
      this._attempt = message.attempt;
      this._after = 0;
      this._at = message.start;
      this._attempted.emit(message);
    }
  }

  private _onBytes(bytes: Uint8Array): void {
    const head = this._pending;
    this._pending = null;
    if (!head) {
      return;
    }
    this._after = Math.max(this._after, head.n);
    const expected = this._at ?? head.at;
    if (head.at > expected) {
      this._gap.emit({ at: expected, bytes: head.at - expected, lost: false });
    } else if (head.at < expected) {
      bytes = bytes.subarray(Math.min(bytes.length, expected - head.at));
    }
    if (bytes.length) {
      const at = Math.max(head.at, expected);
      this._at = at + bytes.length;
      this._chunk.emit({ at, bytes });
    }
  }

  private _setConnection(connection: Connection): void {
    // A header whose bytes never came is forgotten: the record will be sent again.
    this._pending = null;
    this._connection = connection;
    this._connectionChanged.emit(connection);
  }

  private readonly _rank: number;
  private readonly _socket: LastingSocket;
  private readonly _chunk = new Signal<this, ILogChunk>(this);
  private readonly _gap = new Signal<this, { at: number; bytes: number; lost: boolean }>(this);
  private readonly _metrics = new Signal<this, IMetrics>(this);
  private readonly _run = new Signal<this, IRun>(this);
  private readonly _attempted = new Signal<this, { attempt: number; start: number; size: number }>(
    this
  );
  private readonly _connectionChanged = new Signal<this, Connection>(this);
  private readonly _finished = new Signal<this, number>(this);
  private _connection: Connection = 'connecting';
  private _attempt: number | null = null;
  private _after = 0;
  private _at: number | null = null;
  private _ranks: number[] = [0];
  private _pending: { n: number; at: number; len: number } | null = null;
}

export namespace LogStream {
  export interface IOptions {
    rank: number;
    open: (position: IPosition, rank: number) => ISocket;
  }
}
