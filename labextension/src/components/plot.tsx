import { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useRef, useState } from 'react';
import { ISeries, MetricsStore, path, short, ticks } from '../metrics';
import { useSignal } from './hooks';

const HEIGHT = 130;
const LEFT = 46;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;

/** All series of a run, each in a plot of its own, drawn as they grow. */
export function Plots(props: { store: MetricsStore; trans: TranslationBundle }): JSX.Element {
  const { store, trans } = props;
  useSignal(store.changed);
  return (
    <div className="j2c-Plots" role="group" aria-label={trans.__('Metrics')}>
      {store.series.map((series, index) => (
        <Plot key={series.name} series={series} index={index} trans={trans} />
      ))}
    </div>
  );
}

function Plot(props: { series: ISeries; index: number; trans: TranslationBundle }): JSX.Element {
  const { series, trans } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(260);
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    const observer = new ResizeObserver(entries => setWidth(entries[0].contentRect.width));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);

  const finite = series.y.filter(Number.isFinite);
  let low = Math.min(...finite);
  let high = Math.max(...finite);
  if (!(high > low)) {
    const room = Math.abs(low) * 0.1 || 1;
    [low, high] = finite.length ? [low - room, high + room] : [0, 1];
  }
  const first = Math.min(...series.x);
  const last = Math.max(...series.x);
  const span = last - first || 1;
  const x = (v: number) => LEFT + ((v - first) / span) * (width - LEFT - RIGHT);
  const y = (v: number) => TOP + (1 - (v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const shown = at ?? series.y.length - 1;
  const color = `j2c-mod-color${props.index % 4}`;

  const onMove = (event: React.PointerEvent) => {
    const left = event.currentTarget.getBoundingClientRect().left;
    const wanted = first + ((event.clientX - left - LEFT) / (width - LEFT - RIGHT)) * span;
    let best = 0;
    series.x.forEach((value, i) => {
      if (Math.abs(value - wanted) < Math.abs(series.x[best] - wanted)) {
        best = i;
      }
    });
    setAt(best);
  };
  const summary = trans.__(
    '%1: %2 at step %3, from %4 to %5',
    series.name,
    short(series.y[series.y.length - 1]),
    short(last),
    short(low),
    short(high)
  );
  return (
    <figure className={`j2c-Plot ${color}`} data-metric={series.name}>
      <figcaption>
        <span className="j2c-Plot-name">{series.name}</span>
        <span className="j2c-Plot-value">{short(series.y[shown])}</span>
        <span className="j2c-Plot-step">{trans.__('step %1', short(series.x[shown]))}</span>
      </figcaption>
      <div ref={box}>
        <svg
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={summary}
          onPointerMove={onMove}
          onPointerLeave={() => setAt(null)}
        >
          {ticks(low, high, 3).map(v => (
            <g key={v} className="j2c-Plot-axis">
              <line x1={LEFT} x2={width - RIGHT} y1={y(v)} y2={y(v)} />
              <text x={LEFT - 6} y={y(v) + 3.5} textAnchor="end">
                {short(v)}
              </text>
            </g>
          ))}
          {ticks(first, last, Math.max(2, Math.floor(width / 110))).map(v => (
            <text key={v} className="j2c-Plot-tick" x={x(v)} y={HEIGHT - 5} textAnchor="middle">
              {short(v)}
            </text>
          ))}
          <path className="j2c-Plot-line" d={path(series, x, y)} />
          {Number.isFinite(series.y[shown]) && (
            <circle
              className="j2c-Plot-dot"
              cx={x(series.x[shown])}
              cy={y(series.y[shown])}
              r={3}
            />
          )}
        </svg>
      </div>
    </figure>
  );
}
