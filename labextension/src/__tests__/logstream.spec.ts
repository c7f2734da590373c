import { LogStream } from '../logstream';
import { FakeSocket } from './fakes';

describe('LogStream', () => {
  let stream: LogStream;
  let text: string;
  const events: unknown[] = [];

  beforeEach(() => {
    jest.useFakeTimers();
    FakeSocket.all = [];
    text = '';
    events.length = 0;
    stream = new LogStream({
      rank: 0,
      open: ({ attempt, after }) => new FakeSocket(`attempt=${attempt}&after=${after}`)
    });
    stream.chunk.connect((_, { bytes }) => {
      text += new TextDecoder().decode(bytes);
    });
    stream.gap.connect((_, gap) => events.push(gap));
    stream.connectionChanged.connect((_, state) => events.push(state));
    stream.finished.connect((_, code) => events.push(code));
  });

  afterEach(() => {
    stream.dispose();
    jest.useRealTimers();
  });

  const hello = (attempt: number, start = 0) => {
    FakeSocket.last.accept();
    FakeSocket.last.say({ type: 'hello', attempt, start, size: start, ranks: [0] });
  };

  it('asks after a lost connection for what follows the last record', () => {
    hello(1);
    FakeSocket.last.log(1, 0, 'abc');
    FakeSocket.last.log(2, 3, 'def');
    FakeSocket.last.drop();
    expect(events).toContain('lost');
    jest.advanceTimersByTime(1000);
    expect(FakeSocket.all.length).toBe(2);
    expect(FakeSocket.last.url).toBe('attempt=1&after=2');
    hello(1);
    FakeSocket.last.log(3, 6, 'ghi');
    expect(text).toBe('abcdefghi');
  });

  it('cuts off what it had already', () => {
    hello(1);
    FakeSocket.last.log(1, 0, 'abc');
    FakeSocket.last.log(2, 1, 'bcdef');
    FakeSocket.last.log(2, 0, 'abc');
    expect(text).toBe('abcdef');
    expect(stream.position).toBe(6);
  });

  it('forgets a header whose bytes were lost with the connection', () => {
    hello(1);
    FakeSocket.last.say({ type: 'log', n: 1, at: 0, len: 3 });
    FakeSocket.last.drop();
    jest.advanceTimersByTime(1000);
    expect(FakeSocket.last.url).toBe('attempt=1&after=0');
    hello(1);
    FakeSocket.last.log(1, 0, 'abc');
    expect(text).toBe('abc');
  });

  it('tells of lost bytes and of holes apart', () => {
    hello(1);
    FakeSocket.last.log(1, 0, 'ab');
    FakeSocket.last.say({ type: 'gap', n: 2, at: 2, bytes: 5 });
    FakeSocket.last.log(3, 7, 'cd');
    FakeSocket.last.log(5, 12, 'ef');
    expect(events.filter(e => typeof e === 'object')).toEqual([
      { at: 2, bytes: 5, lost: true },
      { at: 9, bytes: 3, lost: false }
    ]);
    expect(text).toBe('abcdef');
  });

  it('begins a new log with a new attempt', () => {
    const attempts: number[] = [];
    stream.attempted.connect((_, { attempt }) => attempts.push(attempt));
    hello(1);
    FakeSocket.last.log(9, 0, 'first');
    FakeSocket.last.say({ type: 'hello', attempt: 2, start: 0, size: 0, ranks: [0] });
    FakeSocket.last.log(1, 0, 'second');
    expect(attempts).toEqual([1, 2]);
    expect(text).toBe('firstsecond');
  });

  it('does not connect again once all was sent, or the run is gone', () => {
    hello(1);
    FakeSocket.last.drop(1000);
    jest.advanceTimersByTime(60000);
    expect(FakeSocket.all.length).toBe(1);
    expect(events).toContain(1000);
    expect(events).not.toContain('lost');
  });

  it('takes a silent connection for a dead one', () => {
    hello(1);
    jest.advanceTimersByTime(51000);
    expect(events).toContain('lost');
    jest.advanceTimersByTime(1000);
    expect(FakeSocket.all.length).toBe(2);
  });

  it('waits longer each time, and starts small after success', () => {
    const waits: number[] = [];
    for (let i = 0; i < 4; i++) {
      FakeSocket.last.drop();
      let waited = 0;
      const count = FakeSocket.all.length;
      while (FakeSocket.all.length === count && waited < 60000) {
        jest.advanceTimersByTime(50);
        waited += 50;
      }
      waits.push(waited);
    }
    expect(waits[3]).toBeGreaterThan(waits[0] * 3);
    hello(1);
    FakeSocket.last.drop();
    jest.advanceTimersByTime(700);
    expect(FakeSocket.all.length).toBe(6);
  });
});
