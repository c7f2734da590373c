import { ISignal } from '@lumino/signaling';
import { useEffect, useReducer, useState } from 'react';

/** Render again whenever the signal is emitted. */
export function useSignal<S, A>(signal: ISignal<S, A>): void {
  const [, render] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const slot = () => render();
    signal.connect(slot);
    return () => {
      signal.disconnect(slot);
    };
  }, [signal]);
}

/** Seconds since the epoch, renewed every second while `ticking`. */
export function useNow(ticking: boolean): number {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!ticking) {
      return;
    }
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, [ticking]);
  return now;
}

/** The value, once it has stayed the same for a while. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}
