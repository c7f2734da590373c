import { matches, RunsModel } from '../model';
import { IRun, IRunPage } from '../tokens';
import { FakeSocket, run } from './fakes';

/** A server with these runs, newest first. */
class FakeSource {
  constructor(public all: IRun[]) {}

  asked: unknown[] = [];

  runs(query: {
    limit: number;
    cursor?: string | null;
    text?: string;
    group?: string;
  }): Promise<IRunPage> {
    this.asked.push(query);
    const filter = { text: query.text ?? '', group: query.group || 'all' };
    const left = this.all.filter(r => (!query.cursor || r.id < query.cursor) && matches(r, filter));
    const page = left.slice(0, query.limit);
    const counts: { [state: string]: number } = {};
    this.all.forEach(r => (counts[r.state] = (counts[r.state] ?? 0) + 1));
    const cursor = left.length > page.length ? page[page.length - 1].id : null;
    return Promise.resolve({ runs: page, cursor, counts });
  }
}

const id = (n: number) => `20260101-${String(n).padStart(6, '0')}-aaaaaa`;
const settle = () => new Promise(resolve => setTimeout(resolve, 0));

describe('RunsModel', () => {
  let model: RunsModel;
  let source: FakeSource;

  const start = async (runs: IRun[]) => {
    FakeSocket.all = [];
    source = new FakeSource(runs);
    model = new RunsModel(source, () => new FakeSocket());
    FakeSocket.last.accept();
    await settle();
  };

  afterEach(() => model.dispose());

  it('loads the first page when the stream is open, and more when asked', async () => {
    await start(Array.from({ length: 450 }, (_, i) => run(id(1000 - i), 'succeeded')));
    expect(model.runs.length).toBe(200);
    expect(model.hasMore).toBe(true);
    await model.loadMore();
    await model.loadMore();
    expect(model.runs.map(r => r.id)).toEqual(source.all.map(r => r.id));
    expect(model.hasMore).toBe(false);
  });

  it('puts a new run where it belongs and counts it once', async () => {
    await start([run(id(5), 'succeeded'), run(id(3), 'failed')]);
    model.accept(run(id(7), 'packing'));
    FakeSocket.last.say({ type: 'run', run: run(id(7), 'queued') });
    FakeSocket.last.say({ type: 'run', run: run(id(4), 'running') });
    expect(model.runs.map(r => r.id)).toEqual([id(7), id(5), id(4), id(3)]);
    expect(model.counts).toEqual({ succeeded: 1, failed: 1, packing: 0, queued: 1, running: 1 });
  });

  it('leaves older runs to the pages that are still to come', async () => {
    await start(Array.from({ length: 250 }, (_, i) => run(id(1000 - i), 'succeeded')));
    FakeSocket.last.say({ type: 'run', run: run(id(1), 'running') });
    expect(model.runs.length).toBe(200);
  });

  it('drops a run that no longer passes the filter, and one that was deleted', async () => {
    await start([run(id(2), 'running'), run(id(1), 'queued')]);
    model.setFilter({ group: 'active' });
    await settle();
    FakeSocket.last.say({ type: 'run', run: run(id(2), 'succeeded') });
    expect(model.runs.map(r => r.id)).toEqual([id(1)]);
    FakeSocket.last.say({ type: 'deleted', id: id(1) });
    expect(model.runs).toEqual([]);
  });

  it('tells once that a run started and once that it ended', async () => {
    await start([run(id(1), 'queued')]);
    const told: string[] = [];
    model.happened.connect((_, { run, what }) => told.push(`${what} ${run.state}`));
    for (const state of [
      'starting',
      'fetching',
      'running',
      'running',
      'saving',
      'failed'
    ] as const) {
      FakeSocket.last.say({ type: 'run', run: run(id(1), state) });
    }
    expect(told).toEqual(['started running', 'ended failed']);
  });

  it('tells of an end that came while the connection was lost', async () => {
    await start([run(id(1), 'running')]);
    const told: string[] = [];
    model.happened.connect((_, { run, what }) => told.push(`${what} ${run.state}`));
    FakeSocket.last.drop();
    expect(model.connection).toBe('lost');
    source.all = [run(id(1), 'succeeded')];
    await new Promise(resolve => setTimeout(resolve, 800));
    FakeSocket.last.accept();
    await settle();
    expect(model.connection).toBe('connected');
    expect(told).toEqual(['ended succeeded']);
  });

  it('shows the answer to the last filter, whichever comes last', async () => {
    await start([run(id(2), 'failed', { name: 'b' }), run(id(1), 'succeeded', { name: 'a' })]);
    const answers: (() => void)[] = [];
    const real = source.runs.bind(source);
    source.runs = query =>
      new Promise(resolve => answers.push(() => resolve(real(query) as never)));
    model.setFilter({ text: 'a' });
    model.setFilter({ text: 'b' });
    answers[1]();
    await settle();
    answers[0]();
    await settle();
    expect(model.runs.map(r => r.name)).toEqual(['b']);
  });
});
