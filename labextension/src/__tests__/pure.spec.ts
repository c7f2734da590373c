import * as format from '../format';
import { EMPTY, fromRequest, kindOf, toRequest, withProfile } from '../formstate';
import { LineFilter } from '../linefilter';
import { lineStart, LogWindow } from '../logwindow';
import { MetricsStore, path, short, ticks } from '../metrics';
import { run } from './fakes';

const words = {
  required: 'required',
  quote: 'quote',
  number: 'number',
  memory: 'memory',
  time: 'time',
  pairs: 'pairs'
};

const bytes = (text: string) => new TextEncoder().encode(text);
const held = (window: LogWindow) => window.pieces.map(p => new TextDecoder().decode(p)).join('');

describe('arguments', () => {
  const examples: string[][] = [
    [],
    [''],
    ['a b', "it's", '"quoted"', '$HOME', '{x}', '*', 'new\nline', 'back\\slash', 'é€', '--x=1']
  ];
  it.each(examples.map(e => [e]))('%j come back as they were', args => {
    expect(format.splitArgs(format.joinArgs(args))).toEqual(args);
  });

  it('are split as a shell does', () => {
    expect(format.splitArgs(`a  'b c' "d \\"e\\" \\n" f\\ g ''`)).toEqual([
      'a',
      'b c',
      'd "e" \\n',
      'f g',
      ''
    ]);
    expect(() => format.splitArgs("a 'b")).toThrow();
  });
});

describe('format', () => {
  it('writes sizes', () => {
    expect([0, 999, 1500, 12_345_678, 999_600_000].map(format.bytes)).toEqual([
      '0 B',
      '999 B',
      '1.5 kB',
      '12 MB',
      '1 GB'
    ]);
  });

  it('counts from the start to the end, and while it goes on to now', () => {
    expect(format.elapsed(run('1', 'running', { started: 1010 }), 1030)).toBe(20);
    expect(format.elapsed(run('1', 'succeeded', { started: 1010, finished: 1015 }), 9999)).toBe(5);
    expect(format.elapsed(run('1', 'lost'), 9999)).toBe(0);
  });

  it('knows how far a stage is only when its size is known', () => {
    const progress = { stage: 'pack', bytes: 50, total_bytes: 200 };
    expect(format.fraction(run('1', 'packing', { progress }))).toBe(0.25);
    expect(format.fraction(run('1', 'packing', { progress: { stage: 'pack', bytes: 50 } }))).toBe(
      null
    );
  });

  it('reads NAME=VALUE lines to the letter', () => {
    expect(format.parsePairs('A=b=c\n\nD_1= x ')).toEqual({ A: 'b=c', D_1: ' x ' });
    expect(() => format.parsePairs('1A=x')).toThrow();
    expect(() => format.parsePairs('=x')).toThrow();
  });
});

describe('form', () => {
  it('makes a request of what is filled in, and nothing of what is not', () => {
    const { request, errors } = toRequest(
      { ...EMPTY, entry: ' train.py ', args: "--lr '3e-4'", gpus: '2', env: 'A=1' },
      words
    );
    expect(errors).toEqual({});
    expect(request).toEqual({
      entry: 'train.py',
      kind: 'script',
      args: ['--lr', '3e-4'],
      gpus: 2,
      env: { A: '1' },
      inputs: {},
      outputs: []
    });
  });

  it('says for each field what is wrong', () => {
    const wrong = { args: "'", gpus: '-1', cpus: '0', memory: 'big', time: '2x', env: 'x' };
    const { errors } = toRequest({ ...EMPTY, ...wrong }, words);
    expect(errors).toEqual({
      entry: 'required',
      args: 'quote',
      gpus: 'number',
      cpus: 'number',
      memory: 'memory',
      time: 'time',
      env: 'pairs'
    });
  });

  it('comes back from a request unchanged', () => {
    const request = {
      entry: 'a b.ipynb',
      kind: 'notebook' as const,
      args: ['x y', ''],
      gpus: 4,
      memory: '16G',
      env: { A: 'b=c' },
      inputs: { D: 's3://x' },
      outputs: ['*.pt']
    };
    expect(toRequest(fromRequest(request), words).request).toEqual(request);
  });

  it('takes over a profile and tells kinds apart', () => {
    const state = withProfile({ ...EMPTY, gpus: '9' }, { name: 'A100', cpus: 8, time: '4h' });
    expect([state.profile, state.gpus, state.cpus, state.time]).toEqual(['A100', '', '8', '4h']);
    expect(kindOf('x.ipynb', 'script')).toBe('notebook');
    expect(kindOf('x.py', 'module')).toBe('script');
    expect(kindOf('pkg.train', 'module')).toBe('module');
  });
});

describe('LogWindow', () => {
  it('slides over the end of a log', () => {
    const window = new LogWindow(10);
    'abcdefghij'.split('').forEach((c, i) => window.append(i * 4, bytes(c.repeat(4)), true));
    expect([window.start, window.end, held(window)]).toEqual([32, 40, 'iiiijjjj']);
  });

  it('refuses what does not follow, and what has no room when it may not slide', () => {
    const window = new LogWindow(6);
    window.reset(100);
    expect(window.append(99, bytes('x'), true)).toBe(false);
    expect(window.append(100, bytes('abcd'), false)).toBe(true);
    expect(window.append(104, bytes('efgh'), false)).toBe(false);
    expect(held(window)).toBe('abcd');
  });

  it('takes older bytes and lets the newest go', () => {
    const window = new LogWindow(6);
    window.reset(4);
    window.append(4, bytes('efgh'), true);
    window.prepend(bytes('abcd'));
    expect([window.start, window.end, held(window)]).toEqual([0, 4, 'abcd']);
  });

  it('begins with a line, or with a character', () => {
    expect(lineStart(bytes('rest\nline'))).toBe(5);
    expect(lineStart(bytes('€uro').subarray(1))).toBe(2);
  });
});

describe('metrics', () => {
  it('keeps series in order and thins them out', () => {
    const store = new MetricsStore();
    for (let i = 0; i < 9001; i++) {
      store.add({ n: i, time: i, step: i, values: { loss: 1 / (i + 1), bad: 'x' as never } });
    }
    const [loss] = store.series;
    expect(store.series.length).toBe(1);
    expect(loss.y.length).toBeLessThanOrEqual(4001);
    expect(loss.x[0]).toBe(0);
    expect(loss.x[loss.x.length - 1]).toBe(9000);
  });

  it('chooses round ticks inside the range', () => {
    expect(ticks(0, 1, 4)).toEqual([0, 0.5, 1]);
    expect(ticks(3, 97, 3)).toEqual([50]);
    expect(ticks(5, 5, 3)).toEqual([5]);
  });

  it('writes numbers shortly, and breaks a line where there is none', () => {
    expect([0, 0.00012345, 1234567, 0.5].map(short)).toEqual(['0', '1.23e-4', '1.23e6', '0.5']);
    const series = { name: 'x', x: [0, 1, 2, 3], y: [1, NaN, 2, 3] };
    expect(
      path(
        series,
        v => v,
        v => v
      )
    ).toBe('M0.0 1.0M2.0 2.0L3.0 3.0');
  });
});

describe('LineFilter', () => {
  const text = 'a\n::m 1\n::\n:::m\n::m 2\nx ::m 3\n::m';
  const shown = 'a\n::\n:::m\nx ::m 3\n';

  it.each([1, 2, 3, 7, 100])('takes whole lines out, in pieces of %d bytes', size => {
    const filter = new LineFilter('::m ');
    const all = bytes(text);
    let out = '';
    for (let i = 0; i < all.length; i += size) {
      out += new TextDecoder().decode(filter.pass(all.subarray(i, i + size)));
    }
    expect(out).toBe(shown);
  });
});
