import { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useRef, useState } from 'react';
import { CommandIDs, IRunsModel, isFinal } from '../tokens';
import { useNow, useSignal } from './hooks';
import { IRunActions, RunRow } from './runRow';

/** Height of a row in pixels, as in `style/panel.css`. */
const ROW = 68;
/** Rows drawn beyond what is seen, so that scrolling shows no white. */
const MARGIN = 6;

export interface IRunListProps extends IRunActions {
  model: IRunsModel;
  locale: string;
  trans: TranslationBundle;
}

/** The runs in a window: only the rows that are seen exist, however many runs there are. */
export function RunList(props: IRunListProps): JSX.Element {
  const { model, trans } = props;
  useSignal(model.changed);
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [focused, setFocused] = useState(0);
  const runs = model.runs;
  const now = useNow(runs.some(run => !isFinal(run.state)));

  useEffect(() => {
    const node = box.current!;
    const observer = new ResizeObserver(() =>
      setView(v => ({ ...v, height: node.clientHeight || v.height }))
    );
    observer.observe(node);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(view.top / ROW) - MARGIN);
  const last = Math.min(runs.length, Math.ceil((view.top + view.height) / ROW) + MARGIN);
  useEffect(() => {
    if (last > runs.length - 50 && model.hasMore) {
      void model.loadMore();
    }
  }, [last, runs.length, model.hasMore]);

  const focus = (index: number) => {
    const node = box.current!;
    const next = Math.max(0, Math.min(runs.length - 1, index));
    setFocused(next);
    if (next * ROW < node.scrollTop) {
      node.scrollTop = next * ROW;
    } else if ((next + 1) * ROW > node.scrollTop + node.clientHeight) {
      node.scrollTop = (next + 1) * ROW - node.clientHeight;
    }
    const take = () => {
      const row = node.querySelector<HTMLElement>(`.j2c-Run-open[data-index="${next}"]`);
      row?.focus();
      return row !== null;
    };
    if (!take()) {
      // Scrolled to: drawn with the next frame.
      requestAnimationFrame(take);
    }
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 1);
    const moves: { [key: string]: number } = {
      ArrowDown: focused + 1,
      ArrowUp: focused - 1,
      PageDown: focused + page,
      PageUp: focused - page,
      Home: 0,
      End: runs.length - 1
    };
    if (event.key in moves) {
      event.preventDefault();
      focus(moves[event.key]);
    } else if (event.key === 'Delete' && runs[focused]) {
      props.execute(CommandIDs.remove, runs[focused].id);
    } else if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      // Along the row: the run itself, then what can be done with it.
      const row = (event.target as HTMLElement).closest('.j2c-Run');
      const stops = [...(row?.querySelectorAll<HTMLElement>('button') ?? [])];
      const step = event.key === 'ArrowRight' ? 1 : -1;
      stops[stops.indexOf(event.target as HTMLElement) + step]?.focus();
    }
  };

  const present = Math.min(focused, runs.length - 1);
  return (
    <div
      className="j2c-List"
      ref={box}
      onScroll={event => setView({ ...view, top: event.currentTarget.scrollTop })}
      onKeyDown={onKeyDown}
      onFocus={event => {
        const index = (event.target as HTMLElement).dataset.index;
        if (index !== undefined) {
          setFocused(Number(index));
        }
      }}
    >
      <div role="list" aria-label={trans.__('Runs')} style={{ height: runs.length * ROW }}>
        {runs.slice(first, last).map((run, i) => (
          <RunRow
            key={run.id}
            run={run}
            now={now}
            locale={props.locale}
            trans={trans}
            top={(first + i) * ROW}
            index={first + i}
            count={model.hasMore ? -1 : runs.length}
            focusable={first + i === present}
            execute={props.execute}
            menu={props.menu}
          />
        ))}
      </div>
    </div>
  );
}
