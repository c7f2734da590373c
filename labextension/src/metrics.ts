import { ISignal, Signal } from '@lumino/signaling';
import { IMetrics } from './logstream';

/** A numeric series: `x` is the step, or the number of the point where there are no steps. */
export interface ISeries {
  name: string;
  x: number[];
  y: number[];
}

/** Points kept for each series; more are thinned out, every second one first. */
const MOST_POINTS = 4000;

/** The series that a run has reported so far. */
export class MetricsStore {
  get series(): readonly ISeries[] {
    return [...this._series.values()];
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  add(metrics: IMetrics): void {
    for (const [name, value] of Object.entries(metrics.values)) {
      if (typeof value !== 'number') {
        continue;
      }
      let series = this._series.get(name);
      if (!series) {
        series = { name, x: [], y: [] };
        this._series.set(name, series);
        this._counts.set(name, 0);
      }
      const count = this._counts.get(name)!;
      this._counts.set(name, count + 1);
      series.x.push(metrics.step ?? count);
      series.y.push(value);
      if (series.y.length > MOST_POINTS) {
        thin(series);
      }
    }
    this._changed.emit();
  }

  clear(): void {
    this._series.clear();
    this._counts.clear();
    this._changed.emit();
  }

  private readonly _series = new Map<string, ISeries>();
  private readonly _counts = new Map<string, number>();
  private readonly _changed = new Signal<this, void>(this);
}

function thin(series: ISeries): void {
  const last = series.y.length - 1;
  const keep = (_: number, index: number) => index % 2 === 0 || index === last;
  series.x = series.x.filter(keep);
  series.y = series.y.filter(keep);
}

/** At most `count` round values that cover the range from `low` to `high`. */
export function ticks(low: number, high: number, count: number): number[] {
  if (!(high > low)) {
    return [low];
  }
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw) ?? raw;
  const values: number[] = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) {
    values.push(Number((k * step).toPrecision(12)));
  }
  return values;
}

/** A number short enough for an axis or a legend. */
export function short(value: number): string {
  if (!Number.isFinite(value)) {
    return String(value);
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
    return value
      .toExponential(2)
      .replace(/\.?0+e/, 'e')
      .replace('e+', 'e');
  }
  return String(Number(value.toPrecision(4)));
}

/** Points of an SVG path; a value that is no number breaks the line. */
export function path(
  series: ISeries,
  x: (value: number) => number,
  y: (value: number) => number
): string {
  let pen = 'M';
  const parts: string[] = [];
  for (let i = 0; i < series.y.length; i++) {
    if (!Number.isFinite(series.y[i])) {
      pen = 'M';
      continue;
    }
    parts.push(`${pen}${x(series.x[i]).toFixed(1)} ${y(series.y[i]).toFixed(1)}`);
    pen = 'L';
  }
  return parts.join('');
}
