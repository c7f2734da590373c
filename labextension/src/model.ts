import { ISignal, Signal } from '@lumino/signaling';
import { ISocket, LastingSocket } from './socket';
import { Connection, IFilter, IRun, IRunHappening, IRunPage, IRunsModel, isFinal } from './tokens';

const PAGE = 200;

/** What the model needs of the server. */
export interface IRunsSource {
  runs(query: {
    limit: number;
    cursor?: string | null;
    text?: string;
    group?: string;
  }): Promise<IRunPage>;
}

/**
 * The runs: a list that is loaded in pages and kept true by the server's stream of changes.
 *
 * Each time the stream connects, the first pages are read again: what happened in between is in
 * them, and what happens from then on comes through the stream.
 */
export class RunsModel implements IRunsModel {
  constructor(
    private readonly _source: IRunsSource,
    openSocket: () => ISocket
  ) {
    this._socket = new LastingSocket({
      open: openSocket,
      onMessage: data => this._onMessage(String(data)),
      onState: state => this._onState(state),
      onEnd: () => this._onState('lost')
    });
  }

  get runs(): readonly IRun[] {
    return this._runs;
  }

  get counts(): { readonly [state: string]: number } {
    return this._counts;
  }

  get filter(): IFilter {
    return this._filter;
  }

  get connection(): Connection {
    return this._connection;
  }

  get ready(): boolean {
    return this._ready;
  }

  get hasMore(): boolean {
    return this._cursor !== null;
  }

  get error(): string {
    return this._error;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get happened(): ISignal<this, IRunHappening> {
    return this._happened;
  }

  find(id: string): IRun | undefined {
    return this._known.get(id);
  }

  setFilter(filter: Partial<IFilter>): void {
    this._filter = { ...this._filter, ...filter };
    this._changed.emit();
    void this.refresh();
  }

  /** Read the first page again, and as many more as were loaded. */
  async refresh(): Promise<void> {
    const generation = ++this._generation;
    const wanted = Math.max(this._filterLoaded === key(this._filter) ? this._runs.length : 0, PAGE);
    try {
      let cursor: string | null = null;
      const runs: IRun[] = [];
      do {
        const page: IRunPage = await this._page(cursor);
        if (generation !== this._generation) {
          return;
        }
        runs.push(...page.runs);
        this._counts = page.counts;
        cursor = page.cursor;
      } while (cursor !== null && runs.length < wanted);
      this._cursor = cursor;
      this._filterLoaded = key(this._filter);
      this._runs = runs;
      this._ready = true;
      this._error = '';
      for (const run of runs) {
        const before = this._known.get(run.id);
        this._known.set(run.id, run);
        // What happened while the connection was lost.
        this._tell(before, run);
      }
    } catch (error) {
      if (generation !== this._generation) {
        return;
      }
      this._error = (error as Error).message;
    }
    this._changed.emit();
  }

  async loadMore(): Promise<void> {
    if (this._cursor === null || this._loading) {
      return;
    }
    const generation = this._generation;
    this._loading = true;
    try {
      const page = await this._page(this._cursor);
      if (generation === this._generation) {
        const had = new Set(this._runs.map(run => run.id));
        this._runs = [...this._runs, ...page.runs.filter(run => !had.has(run.id))];
        page.runs.forEach(run => this._known.set(run.id, run));
        this._cursor = page.cursor;
        this._changed.emit();
      }
    } finally {
      this._loading = false;
    }
  }

  /** Take a run that an answer brought, before the stream tells of it. */
  accept(run: IRun): void {
    const before = this._known.get(run.id);
    this._known.set(run.id, run);
    if (before && before.state !== run.state) {
      this._count(before.state, -1);
    }
    if (before?.state !== run.state) {
      this._count(run.state, 1);
    }
    const place = this._runs.findIndex(other => other.id <= run.id);
    const present = place >= 0 && this._runs[place].id === run.id;
    if (matches(run, this._filter)) {
      const end = place < 0 ? this._runs.length : place;
      // A run older than all that was loaded belongs to a page that is still to come.
      if (present || place >= 0 || this._cursor === null) {
        this._runs = [
          ...this._runs.slice(0, end),
          run,
          ...this._runs.slice(present ? end + 1 : end)
        ];
      }
    } else if (present) {
      this._runs = this._runs.filter(other => other.id !== run.id);
    }
    this._tell(before, run);
    this._changed.emit();
  }

  forget(id: string): void {
    const before = this._known.get(id);
    if (before) {
      this._count(before.state, -1);
      this._known.delete(id);
      this._runs = this._runs.filter(run => run.id !== id);
      this._changed.emit();
    }
  }

  dispose(): void {
    this._socket.dispose();
    Signal.clearData(this);
  }

  private _page(cursor: string | null): Promise<IRunPage> {
    const { text, group } = this._filter;
    return this._source.runs({ limit: PAGE, cursor, text, group: group === 'all' ? '' : group });
  }

  private _count(state: string, by: number): void {
    this._counts = { ...this._counts, [state]: Math.max(0, (this._counts[state] ?? 0) + by) };
  }

  private _tell(before: IRun | undefined, run: IRun): void {
    if (!before) {
      return;
    }
    if (isFinal(run.state) && !isFinal(before.state)) {
      this._happened.emit({ run, what: 'ended' });
    } else if (run.state === 'running' && !isFinal(before.state)) {
      if (before.state !== 'running' && before.state !== 'saving') {
        this._happened.emit({ run, what: 'started' });
      }
    }
  }

  private _onState(state: Connection): void {
    this._connection = state;
    this._changed.emit();
    if (state === 'connected') {
      void this.refresh();
    }
  }

  private _onMessage(data: string): void {
    const message = JSON.parse(data) as { type: string; id?: string; run?: IRun };
    if (message.type === 'run' && message.run) {
      this.accept(message.run);
    } else if (message.type === 'deleted' && message.id) {
      this.forget(message.id);
    }
  }

  private readonly _socket: LastingSocket;
  private readonly _known = new Map<string, IRun>();
  private readonly _changed = new Signal<this, void>(this);
  private readonly _happened = new Signal<this, IRunHappening>(this);
  private _runs: readonly IRun[] = [];
  private _counts: { [state: string]: number } = {};
  private _filter: IFilter = { text: '', group: 'all' };
  private _filterLoaded = '';
  private _connection: Connection = 'connecting';
  private _cursor: string | null = null;
  private _ready = false;
  private _loading = false;
  private _generation = 0;
  private _error = '';
}

/** As the server filters, so that a change does not have to ask. */
export function matches(run: IRun, filter: IFilter): boolean {
  if (filter.group === 'active' && isFinal(run.state)) {
    return false;
  }
  if (filter.group === 'succeeded' && run.state !== 'succeeded') {
    return false;
  }
  if (filter.group === 'failed' && !['failed', 'lost', 'cancelled'].includes(run.state)) {
    return false;
  }
  const haystack = [run.id, run.name, run.entry.target, ...run.args, run.reason]
    .join(' ')
    .toLowerCase();
  return filter.text
    .toLowerCase()
    .split(/\s+/)
    .every(word => haystack.includes(word));
}

function key(filter: IFilter): string {
  return JSON.stringify([filter.text, filter.group]);
}
