import { ISocket } from '../socket';
import { IRun, RunState } from '../tokens';

/** A socket that the test plays the server's side of. */
export class FakeSocket implements ISocket {
  static all: FakeSocket[] = [];

  constructor(readonly url = '') {
    FakeSocket.all.push(this);
  }

  static get last(): FakeSocket {
    return FakeSocket.all[FakeSocket.all.length - 1];
  }

  binaryType = '';
  onopen: ((event: unknown) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  onerror: ((event: unknown) => void) | null = null;
  closed = false;

  close(): void {
    this.closed = true;
  }

  accept(): void {
    this.onopen?.({});
  }

  say(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  bytes(text: string): void {
    this.onmessage?.({ data: new TextEncoder().encode(text).buffer });
  }

  log(n: number, at: number, text: string): void {
    this.say({ type: 'log', n, at, len: text.length });
    this.bytes(text);
  }

  drop(code = 1006): void {
    this.onclose?.({ code, reason: '' });
  }
}

export function run(id: string, state: RunState, more: Partial<IRun> = {}): IRun {
  return {
    id,
    name: `run ${id}`,
    state,
    reason: '',
    project: '/p',
    created: 1000,
    started: null,
    finished: null,
    exit_code: null,
    signal: null,
    attempt: 1,
    scheduler: 'local',
    queue: null,
    resources: { gpus: 0, cpus: null, memory: null, nodes: 1, time: null },
    entry: { kind: 'script', target: 'train.py' },
    args: [],
    outputs: 0,
    expected_start: null,
    progress: null,
    notebook: null,
    line: '%j2c submit train.py',
    ...more
  };
}
