/** What this module needs of a WebSocket, so that tests can bring their own. */
export interface ISocket {
  binaryType: string;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  close(): void;
}

/** Close codes of `docs/rest.md` after which connecting again is of no use. */
export const ENDED = 1000;
export const FORBIDDEN = 4403;
export const NOT_FOUND = 4404;

const FIRST_DELAY = 500;
const LONGEST_DELAY = 15000;
/** The server says something at least every 20 s; silence for longer means a dead connection. */
const SILENCE = 50000;

/**
 * A socket that connects again, with growing delays, until it is told that there is no more.
 *
 * The address is made anew for every connection, so it can say what was received already.
 */
export class LastingSocket {
  constructor(private readonly _options: LastingSocket.IOptions) {
    this._connect();
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Connect now instead of at the end of the delay. */
  retry(): void {
    if (!this._disposed && this._timer !== undefined) {
      clearTimeout(this._timer);
      this._connect();
    }
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._timer);
    clearTimeout(this._watchdog);
    this._drop();
  }

  private _connect(): void {
    this._timer = undefined;
    this._options.onState('connecting');
    let socket: ISocket;
    try {
      socket = this._options.open();
    } catch {
      this._again();
      return;
    }
    this._socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => {
      this._watch();
      this._options.onState('connected');
    };
    socket.onmessage = event => {
      this._delay = FIRST_DELAY;
      this._watch();
      this._options.onMessage(event.data);
    };
    socket.onclose = event => {
      this._drop();
      if (event.code === ENDED || event.code === FORBIDDEN || event.code === NOT_FOUND) {
        this._disposed = true;
        clearTimeout(this._watchdog);
        this._options.onEnd(event.code, event.reason);
      } else {
        this._again();
      }
    };
    this._watch();
  }

  private _again(): void {
    if (this._disposed) {
      return;
    }
    clearTimeout(this._watchdog);
    this._options.onState('lost');
    // Not all browsers of a restarted server at the same moment.
    const delay = this._delay * (0.75 + Math.random() / 2);
    this._delay = Math.min(this._delay * 2, LONGEST_DELAY);
    this._timer = setTimeout(() => this._connect(), delay);
  }

  private _watch(): void {
    clearTimeout(this._watchdog);
    this._watchdog = setTimeout(() => {
      this._drop();
      this._again();
    }, SILENCE);
  }

  private _drop(): void {
    const socket = this._socket;
    this._socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = socket.onerror = null;
      socket.close();
    }
  }

  private _socket: ISocket | null = null;
  private _delay = FIRST_DELAY;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _watchdog: ReturnType<typeof setTimeout> | undefined;
  private _disposed = false;
}

export namespace LastingSocket {
  export interface IOptions {
    open: () => ISocket;
    onMessage: (data: unknown) => void;
    onState: (state: 'connecting' | 'connected' | 'lost') => void;
    /** The server said that there is no more. */
    onEnd: (code: number, reason: string) => void;
  }
}
