import { ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { BoxLayout, BoxPanel, SplitPanel, Widget } from '@lumino/widgets';
import React from 'react';
import { Api } from './api';
import { LogBar } from './components/logBar';
import { Plots } from './components/plot';
import { ILogChunk, LogStream } from './logstream';
import { lineStart, LogWindow } from './logwindow';
import { MetricsStore } from './metrics';
import type { LogTerminal } from './terminal';
import { IRun, IRunsModel } from './tokens';

/** Log bytes held in memory, and read at once when scrolling up. */
const CAPACITY = 8 << 20;
const OLDER = 512 << 10;
/** A log is opened this far from its end. */
export const TAIL = 512 << 10;
/** When the renderer is this far behind, what it has not drawn is skipped. */
const BEHIND = 12 << 20;

/** A main-area tab: the log of a run, its numbers beside it. */
export class LogViewer extends BoxPanel {
  constructor(private readonly _options: LogViewer.IOptions) {
    super({ direction: 'top-to-bottom', spacing: 0 });
    this.addClass('j2c-LogViewer');
    const { trans } = _options;
    this._run = _options.model.find(_options.runId);
    this._bar = ReactWidget.create(React.createElement(BarView, { viewer: this }));
    this._bar.addClass('j2c-LogViewer-bar');
    this._split = new SplitPanel({ orientation: 'horizontal', spacing: 1 });
    this._split.addClass('j2c-LogViewer-split');
    this._host.addClass('j2c-LogViewer-terminal');
    this._host.node.setAttribute('role', 'log');
    this._host.node.setAttribute('aria-label', trans.__('Log'));
    this._plots = ReactWidget.create(React.createElement(Plots, { store: this.metrics, trans }));
    this._plots.addClass('j2c-LogViewer-plots');
    this._plots.hide();
    this._split.addWidget(this._host);
    this._split.addWidget(this._plots);
    this.addWidget(this._bar);
    this.addWidget(this._split);
    BoxLayout.setStretch(this._bar, 0);
    BoxLayout.setStretch(this._split, 1);
    BoxLayout.setSizeBasis(this._bar, 36);
    this.metrics.changed.connect(this._showPlots, this);
    _options.model.changed.connect(this._onModel, this);
    this._stream = this._open(0);
    void this._load();
  }

  readonly metrics = new MetricsStore();
  /** Emitted when the bar has to be drawn again. */
  readonly stateChanged = new Signal<this, void>(this);

  get runId(): string {
    return this._options.runId;
  }

  /** The text that is loaded, as it is drawn. */
  get text(): string {
    return this._terminal?.text() ?? '';
  }

  get barProps(): React.ComponentProps<typeof LogBar> {
    const { api, runId, trans } = this._options;
    const attempt = this._stream.attempt ?? 1;
    return {
      run: this._run,
      connection: this._stream.connection,
      ended: this._ended,
      follow: this._follow,
      rank: this._rank,
      ranks: this._stream.ranks,
      query: this._query,
      found: this._found,
      size: this._stream.position,
      download: api.url(`runs/${runId}/log?attempt=${attempt}&rank=${this._rank}&download=1`),
      trans,
      onFollow: () => this.setFollow(!this._follow),
      onRank: rank => this._setRank(rank),
      onQuery: text => this._setQuery(text),
      onFind: backwards => this._terminal?.find(this._query, backwards, false),
      onCopy: () => this.copy(),
      onCancel: () => this._options.cancel(),
      onRetry: () => this._stream.retry()
    };
  }

  /** Keep the end in sight, or stay where the reader is. */
  setFollow(follow: boolean): void {
    this._follow = follow;
    if (follow) {
      if (this._window.end < this._stream.position) {
        void this._jumpToEnd();
      } else {
        this._terminal?.scrollToBottom();
      }
    }
    this.stateChanged.emit();
  }

  /** Put the selection, or all that is loaded, on the clipboard. */
  copy(): void {
    const text = this._terminal?.selection || this.text;
    void navigator.clipboard.writeText(text);
  }

  setFontSize(size: number): void {
    this._terminal?.setFontSize(size);
  }

  updateTheme(): void {
    this._terminal?.updateTheme();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._stream.dispose();
    this._terminal?.dispose();
    this._observer?.disconnect();
    Signal.clearData(this);
    super.dispose();
  }

  protected onActivateRequest(_: Message): void {
    this._terminal?.focus();
  }

  private async _load(): Promise<void> {
    const { LogTerminal } = await import('./terminal');
    if (this.isDisposed) {
      return;
    }
    const css = getComputedStyle(document.body);
    this._terminal = new LogTerminal(this._host.node, {
      fontSize: this._options.fontSize,
      fontFamily: css.getPropertyValue('--jp-code-font-family').trim() || 'monospace',
      screenReader: this._options.screenReader,
      label: this._options.trans.__('Log'),
      onScroll: (top, atBottom) => this._onScroll(top, atBottom),
      onResults: (index, count) => {
        this._found = [index, count];
        this.stateChanged.emit();
      }
    });
    this._observer = new ResizeObserver(() => this._terminal?.fit());
    this._observer.observe(this._host.node);
    this._window.pieces.forEach(piece => this._terminal!.write(piece));
  }

  private _open(rank: number): LogStream {
    const { api, runId } = this._options;
    const stream = new LogStream({
      rank,
      open: ({ attempt, after }, rank) => {
        const query = new URLSearchParams({ rank: String(rank), tail: String(TAIL) });
        if (attempt !== null) {
          query.set('attempt', String(attempt));
          query.set('after', String(after));
        }
        return new WebSocket(api.socketUrl(`runs/${runId}/stream?${query}`)) as never;
      }
    });
    stream.attempted.connect((_, { start }) => this._begin(start));
    stream.chunk.connect((_, chunk) => this._onChunk(chunk));
    stream.gap.connect((_, gap) => void this._onGap(gap));
    stream.metrics.connect((_, metrics) => this.metrics.add(metrics));
    stream.run.connect((_, run) => {
      this._run = run;
      this.stateChanged.emit();
    });
    stream.connectionChanged.connect(() => this.stateChanged.emit());
    stream.finished.connect(() => {
      this._ended = true;
      this.stateChanged.emit();
    });
    return stream;
  }

  private _begin(start: number): void {
    this._cutFirst = start > 0;
    this._window.reset(start);
    this.metrics.clear();
    void this._terminal?.replace([], false);
  }

  private _onChunk({ at, bytes }: ILogChunk): void {
    if (this._cutFirst) {
      // Opened in the middle: begin with a whole line.
      const cut = lineStart(bytes);
      this._cutFirst = false;
      bytes = bytes.subarray(cut);
      at += cut;
      this._window.reset(at);
    }
    if (this._follow && (this._terminal?.queued ?? 0) > BEHIND) {
      this._window.reset(at);
      void this._terminal?.replace([], false);
    }
    if (this._window.append(at, bytes, this._follow)) {
      this._terminal?.write(bytes);
    }
    this._sizeChanged();
  }

  private async _onGap(gap: { at: number; bytes: number; lost: boolean }): Promise<void> {
    if (!gap.lost) {
      return;
    }
    const words = this._options.trans.__('[%1 bytes were lost here]', gap.bytes);
    const end = this._window.end;
    if (end === gap.at) {
      this._window.reset(gap.at + gap.bytes);
      this._terminal?.write(new TextEncoder().encode(`\x1b[0;7m ${words} \x1b[0m\n`));
    }
  }

  private _onScroll(top: number, atBottom: boolean): void {
    if (
      this._follow !== atBottom &&
      (atBottom ? this._window.end >= this._stream.position : true)
    ) {
      this._follow = atBottom;
      this.stateChanged.emit();
    }
    if (top < 50 && !atBottom && this._window.start > 0) {
      void this._loadOlder();
    }
  }

  private async _loadOlder(): Promise<void> {
    if (this._loading) {
      return;
    }
    this._loading = true;
    try {
      const { api, runId } = this._options;
      const end = this._window.start;
      const start = Math.max(0, end - OLDER);
      const attempt = this._stream.attempt ?? 1;
      const bytes = await api.log(runId, start, end, attempt, this._rank);
      if (this.isDisposed || end !== this._window.start || bytes.length !== end - start) {
        return;
      }
      this._window.prepend(start > 0 ? bytes.subarray(lineStart(bytes)) : bytes);
      await this._terminal?.replace(this._window.pieces, true);
    } catch {
      // Scrolling up again asks again.
    } finally {
      this._loading = false;
    }
  }

  private async _jumpToEnd(): Promise<void> {
    const { api, runId } = this._options;
    const end = this._stream.position;
    const start = Math.max(0, end - TAIL);
    const bytes = await api.log(runId, start, end, this._stream.attempt ?? 1, this._rank);
    if (this._stream.position !== end) {
      return this._jumpToEnd();
    }
    const cut = start > 0 ? lineStart(bytes) : 0;
    this._window.reset(start + cut);
    this._window.append(start + cut, bytes.subarray(cut), true);
    await this._terminal?.replace(this._window.pieces, false);
    this._terminal?.scrollToBottom();
  }

  private _setRank(rank: number): void {
    this._rank = rank;
    this._ended = false;
    this._stream.dispose();
    this._stream = this._open(rank);
    this.stateChanged.emit();
  }

  private _setQuery(text: string): void {
    this._query = text;
    this._terminal?.find(text, true, true);
    this.stateChanged.emit();
  }

  private _showPlots(): void {
    const any = this.metrics.series.length > 0;
    if (any && this._plots.isHidden) {
      this._plots.show();
      this._split.setRelativeSizes([2.2, 1]);
    }
  }

  private _onModel(): void {
    const run = this._options.model.find(this.runId);
    if (run && run !== this._run) {
      this._run = run;
      this.stateChanged.emit();
    }
  }

  /** The size stands in the bar: drawn again at most twice a second. */
  private _sizeChanged(): void {
    if (!this._sizeTimer) {
      this._sizeTimer = setTimeout(() => {
        this._sizeTimer = 0 as never;
        this.stateChanged.emit();
      }, 500);
    }
  }

  private readonly _bar: Widget;
  private readonly _split: SplitPanel;
  private readonly _plots: Widget;
  private readonly _host = new Widget();
  private readonly _window = new LogWindow(CAPACITY);
  private _stream: LogStream;
  private _terminal: LogTerminal | null = null;
  private _observer: ResizeObserver | null = null;
  private _run: IRun | undefined;
  private _rank = 0;
  private _follow = true;
  private _ended = false;
  private _loading = false;
  private _cutFirst = false;
  private _query = '';
  private _found: [number, number] = [-1, 0];
  private _sizeTimer: ReturnType<typeof setTimeout> = 0 as never;
}

export namespace LogViewer {
  export interface IOptions {
    runId: string;
    api: Api;
    model: IRunsModel;
    trans: TranslationBundle;
    fontSize: number;
    screenReader: boolean;
    cancel: () => void;
  }
}

function BarView(props: { viewer: LogViewer }): JSX.Element {
  const [, render] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    const slot = () => render();
    props.viewer.stateChanged.connect(slot);
    return () => {
      props.viewer.stateChanged.disconnect(slot);
    };
  }, [props.viewer]);
  return React.createElement(LogBar, props.viewer.barProps);
}
