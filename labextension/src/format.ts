import { TranslationBundle } from '@jupyterlab/translation';
import { IResources, IRun, isFinal } from './tokens';

/** `1.4 MB`: decimal units, as file managers and disks count. */
export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (count >= 999.5 && unit < units.length - 1) {
    count /= 1000;
    unit++;
  }
  return `${unit === 0 || count >= 99.5 ? Math.round(count) : Number(count.toPrecision(2))} ${units[unit]}`;
}

/** `2 h 05 min`, `3 min 20 s`, `12 s`. */
export function duration(seconds: number, trans: TranslationBundle): string {
  const s = Math.max(0, Math.floor(seconds));
  const two = (n: number) => String(n).padStart(2, '0');
  if (s < 60) {
    return trans.__('%1 s', s);
  }
  if (s < 3600) {
    return trans.__('%1 min %2 s', Math.floor(s / 60), two(s % 60));
  }
  if (s < 86400) {
    return trans.__('%1 h %2 min', Math.floor(s / 3600), two(Math.floor((s % 3600) / 60)));
  }
  return trans.__('%1 d %2 h', Math.floor(s / 86400), two(Math.floor((s % 86400) / 3600)));
}

/** Seconds that a run has taken so far, from its request to its end. */
export function elapsed(run: IRun, now: number): number {
  const from = run.started ?? run.created;
  return (run.finished ?? (isFinal(run.state) ? from : now)) - from;
}

/** Today the time, else the date and the time. */
export function when(seconds: number, now: number, locale: string): string {
  const date = new Date(seconds * 1000);
  const options: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  if (date.toDateString() !== new Date(now * 1000).toDateString()) {
    options.day = 'numeric';
    options.month = 'short';
  }
  // English stands for "not set" in Lab: then the browser knows better how times are written.
  return date.toLocaleString(locale === 'en' ? [] : locale.replace('_', '-'), options);
}

/** `2 nodes · 4 GPU · 8 CPU · 16 GB`, only what was asked for. */
export function resources(r: IResources, trans: TranslationBundle): string {
  const parts: string[] = [];
  if (r.nodes > 1) {
    parts.push(trans._n('%1 node', '%1 nodes', r.nodes, r.nodes));
  }
  if (r.gpus) {
    parts.push(trans.__('%1 GPU', r.gpus));
  }
  if (r.cpus) {
    parts.push(trans.__('%1 CPU', r.cpus));
  }
  if (r.memory) {
    parts.push(bytes(r.memory));
  }
  return parts.join(' · ');
}

/** The part of a whole that is done, from 0 to 1, or null when the whole is not known. */
export function fraction(run: IRun): number | null {
  const p = run.progress;
  if (!p) {
    return null;
  }
  if (p.total_bytes) {
    return Math.min(1, (p.bytes ?? 0) / p.total_bytes);
  }
  return p.total_files ? Math.min(1, (p.files ?? 0) / p.total_files) : null;
}

/** Arguments as a shell splits them; an unclosed quote is an error. */
export function splitArgs(text: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote === "'") {
      quote = c === "'" ? '' : quote;
      word = c === "'" ? word : (word ?? '') + c;
    } else if (c === '\\' && i + 1 < text.length && (!quote || '"\\$`'.includes(text[i + 1]))) {
      word = (word ?? '') + text[++i];
    } else if (quote === '"') {
      quote = c === '"' ? '' : quote;
      word = c === '"' ? word : (word ?? '') + c;
    } else if (c === '"' || c === "'") {
      quote = c;
      word = word ?? '';
    } else if (/\s/.test(c)) {
      if (word !== null) {
        words.push(word);
      }
      word = null;
    } else {
      word = (word ?? '') + c;
    }
  }
  if (quote) {
    throw new Error('unclosed quote');
  }
  if (word !== null) {
    words.push(word);
  }
  return words;
}

/** Arguments as text that `splitArgs` splits into the same. */
export function joinArgs(args: readonly string[]): string {
  return args
    .map(a => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replace(/'/g, `'\\''`)}'`))
    .join(' ');
}

/** `NAME=VALUE` lines to an object; throws with the bad line. */
export function parsePairs(text: string): { [name: string]: string } {
  const pairs: { [name: string]: string } = {};
  for (const line of text.split('\n')) {
    if (!line.trim()) {
      continue;
    }
    const place = line.indexOf('=');
    const name = line.slice(0, place).trim();
    if (place < 1 || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new Error(line);
    }
    pairs[name] = line.slice(place + 1);
  }
  return pairs;
}

export function joinPairs(pairs: { [name: string]: string } | undefined): string {
  return Object.entries(pairs ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
}
