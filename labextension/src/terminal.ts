import { FitAddon } from '@xterm/addon-fit';
import { ISearchOptions, SearchAddon } from '@xterm/addon-search';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { LineFilter } from './linefilter';

const SCROLLBACK = 100000;
/** Bytes given to the renderer at once, so that the page stays responsive. */
const BATCH = 256 * 1024;
/** Lines that are drawn as plots beside the log; `docs/events.md` has the format. */
const METRICS_LINE = '::j2c-metrics ';
/** Private modes that would take the log away from its reader: alternate screen, mouse, paste. */
const REFUSED_MODES = [9, 47, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1047, 1048, 1049, 2004];

/**
 * The renderer of a log: xterm.js, read-only, fed with bytes.
 *
 * In a chunk of its own, which is loaded when the first log is opened.
 */
export class LogTerminal {
  constructor(
    readonly host: HTMLElement,
    options: LogTerminal.IOptions
  ) {
    this._terminal = new Terminal({
      convertEol: true,
      disableStdin: true,
      cursorBlink: false,
      cursorInactiveStyle: 'none',
      scrollback: SCROLLBACK,
      fontSize: options.fontSize,
      fontFamily: options.fontFamily,
      screenReaderMode: options.screenReader,
      allowProposedApi: true,
      theme: readTheme(host)
    });
    this._terminal.loadAddon(this._fit);
    this._terminal.loadAddon(this._search);
    this._refuse();
    this._terminal.open(host);
    this._terminal.textarea?.setAttribute('aria-label', options.label);
    this._terminal.onScroll(() => this._onScroll());
    // xterm tells of scrolling by wheel or keys only through its viewport.
    this._viewport()?.addEventListener('scroll', () => this._onScroll());
    this._search.onDidChangeResults(result =>
      options.onResults(result.resultIndex, result.resultCount)
    );
    this._options = options;
    this.fit();
  }

  get selection(): string {
    return this._terminal.getSelection();
  }

  get atBottom(): boolean {
    const buffer = this._terminal.buffer.active;
    return buffer.viewportY >= buffer.baseY;
  }

  /** Bytes that were given and are not drawn yet. */
  get queued(): number {
    return this._queued;
  }

  /** Resolves when all that was written is drawn. */
  write(bytes: Uint8Array): void {
    bytes = this._filter.pass(bytes);
    this._queue.push(bytes);
    this._queued += bytes.length;
    this._pump();
  }

  /** Draw something else instead, keeping the line that is at the top there. */
  async replace(pieces: readonly Uint8Array[], keepTop: boolean): Promise<void> {
    const buffer = this._terminal.buffer.active;
    const fromEnd = buffer.baseY - buffer.viewportY;
    const before = buffer.baseY;
    this._queue = [];
    this._queued = 0;
    this._epoch++;
    this._quiet = true;
    this._terminal.reset();
    this._filter = new LineFilter(METRICS_LINE);
    for (const piece of pieces) {
      const shown = this._filter.pass(piece);
      await new Promise<void>(resolve => this._terminal.write(shown, resolve));
    }
    if (keepTop && before > 0) {
      this._terminal.scrollToLine(Math.max(0, this._terminal.buffer.active.baseY - fromEnd));
    }
    this._quiet = false;
    this._pump();
  }

  scrollToBottom(): void {
    this._terminal.scrollToBottom();
  }

  find(text: string, backwards: boolean, incremental: boolean): boolean {
    const css = getComputedStyle(this.host);
    const color = (name: string, otherwise: string) =>
      css.getPropertyValue(name).trim() || otherwise;
    const options: ISearchOptions = {
      incremental,
      decorations: {
        matchBackground: '#7a5c00',
        activeMatchBackground: '#c77700',
        matchOverviewRuler: color('--jp-warn-color1', '#ff9800'),
        activeMatchColorOverviewRuler: color('--jp-brand-color1', '#2196f3')
      }
    };
    if (!text) {
      this._search.clearDecorations();
      return false;
    }
    return backwards
      ? this._search.findPrevious(text, options)
      : this._search.findNext(text, options);
  }

  selectAll(): void {
    this._terminal.selectAll();
  }

  clearSelection(): void {
    this._terminal.clearSelection();
  }

  focus(): void {
    this._terminal.focus();
  }

  fit(): void {
    if (this.host.clientWidth > 20 && this.host.clientHeight > 20) {
      this._fit.fit();
    }
  }

  setFontSize(size: number): void {
    this._terminal.options.fontSize = size;
    this.fit();
  }

  /** Take the colours of the theme that is in use now. */
  updateTheme(): void {
    this._terminal.options.theme = readTheme(this.host);
  }

  dispose(): void {
    this._epoch++;
    this._queue = [];
    this._terminal.dispose();
  }

  /** The text that is held, for tests and for copying. */
  text(): string {
    const buffer = this._terminal.buffer.active;
    const lines: string[] = [];
    for (let i = 0; i < buffer.length; i++) {
      const line = buffer.getLine(i)!;
      const text = line.translateToString(true);
      if (line.isWrapped && lines.length) {
        lines[lines.length - 1] += text;
      } else {
        lines.push(text);
      }
    }
    return lines.join('\n').trimEnd();
  }

  private _pump(): void {
    if (this._writing || this._quiet || this._queue.length === 0) {
      return;
    }
    const epoch = this._epoch;
    let piece = this._queue.shift()!;
    if (piece.length > BATCH) {
      this._queue.unshift(piece.subarray(BATCH));
      piece = piece.subarray(0, BATCH);
    }
    this._writing = true;
    this._terminal.write(piece, () => {
      this._writing = false;
      if (epoch === this._epoch) {
        this._queued -= piece.length;
      }
      this._pump();
    });
  }

  /** A log is not a program at a terminal: it may colour and overwrite, not take the screen. */
  private _refuse(): void {
    const refuse = (parameters: (number | number[])[]) =>
      parameters.some(p => typeof p === 'number' && REFUSED_MODES.includes(p));
    const parser = this._terminal.parser;
    parser.registerCsiHandler({ prefix: '?', final: 'h' }, refuse);
    parser.registerCsiHandler({ prefix: '?', final: 'l' }, refuse);
    parser.registerCsiHandler({ final: 'J' }, p => p[0] === 3);
    parser.registerEscHandler({ final: 'c' }, () => true);
    parser.registerEscHandler({ intermediates: '(', final: '0' }, () => true);
    parser.registerEscHandler({ intermediates: ')', final: '0' }, () => true);
  }

  private _onScroll(): void {
    if (!this._quiet) {
      this._options.onScroll(this._terminal.buffer.active.viewportY, this.atBottom);
    }
  }

  private _viewport(): HTMLElement | null {
    return this.host.querySelector('.xterm-viewport');
  }

  private readonly _terminal: Terminal;
  private readonly _fit = new FitAddon();
  private readonly _search = new SearchAddon();
  private readonly _options: LogTerminal.IOptions;
  private _filter = new LineFilter(METRICS_LINE);
  private _queue: Uint8Array[] = [];
  private _queued = 0;
  private _writing = false;
  private _quiet = false;
  private _epoch = 0;
}

export namespace LogTerminal {
  export interface IOptions {
    fontSize: number;
    fontFamily: string;
    screenReader: boolean;
    label: string;
    /** The first line that is seen, and whether the last one is. */
    onScroll: (top: number, atBottom: boolean) => void;
    onResults: (index: number, count: number) => void;
  }
}

/** Colours with enough contrast on both of Lab's themes. */
function readTheme(host: HTMLElement): Terminal['options']['theme'] {
  const css = getComputedStyle(host);
  const get = (name: string, otherwise: string) => css.getPropertyValue(name).trim() || otherwise;
  const background = get('--jp-layout-color0', '#ffffff');
  const foreground = get('--jp-content-font-color0', '#000000');
  const dark = document.body.dataset.jpThemeLight === 'false';
  const named = dark
    ? ['#6b7280', '#ff7b72', '#7ee787', '#e3b341', '#79c0ff', '#d2a8ff', '#76e3ea', '#d0d7de']
    : ['#24292f', '#b3261e', '#116329', '#7d4e00', '#0550ae', '#7533b8', '#1b6e75', '#57606a'];
  const bright = dark
    ? ['#8b949e', '#ffa198', '#a5f3b0', '#f2cc60', '#a5d6ff', '#e2c5ff', '#b3f0ff', '#ffffff']
    : ['#57606a', '#c4332b', '#1a7f37', '#8f5a00', '#0969da', '#8250df', '#267f86', '#424a53'];
  const names = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
  const theme: Record<string, string> = {
    background,
    foreground: dark ? '#e6edf3' : foreground.startsWith('rgba') ? '#1f2328' : foreground,
    cursor: background,
    selectionBackground: dark ? '#3a5a8c' : '#b6d7ff'
  };
  names.forEach((name, i) => {
    theme[name] = named[i];
    theme[`bright${name[0].toUpperCase()}${name.slice(1)}`] = bright[i];
  });
  return theme;
}
