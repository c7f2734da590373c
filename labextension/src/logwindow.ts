/**
 * The part of a log that is held in memory: a contiguous range of its bytes, of bounded size.
 *
 * New bytes come at the end, older ones at the start when the reader scrolls up. What does not
 * fit is dropped at the other side, so a log of any length can be read with the same memory.
 */
export class LogWindow {
  constructor(readonly capacity: number) {}

  /** Place of the first byte held. */
  get start(): number {
    return this._start;
  }

  /** Place after the last byte held. */
  get end(): number {
    return this._start + this._size;
  }

  get size(): number {
    return this._size;
  }

  get pieces(): readonly Uint8Array[] {
    return this._pieces;
  }

  /** Forget everything and begin at a place of the log. */
  reset(start: number): void {
    this._pieces = [];
    this._start = start;
    this._size = 0;
  }

  /**
   * Add the bytes that follow; returns false, taking nothing, when they do not follow or when
   * there is no room and `slide` does not allow dropping the oldest.
   */
  append(at: number, bytes: Uint8Array, slide: boolean): boolean {
    if (at !== this.end) {
      return false;
    }
    if (this._size + bytes.length > this.capacity && !slide) {
      return false;
    }
    this._pieces.push(bytes);
    this._size += bytes.length;
    while (this._size > this.capacity && this._pieces.length > 1) {
      const first = this._pieces.shift()!;
      this._start += first.length;
      this._size -= first.length;
    }
    return true;
  }

  /** Add the bytes that come before; the newest are dropped when there is no room. */
  prepend(bytes: Uint8Array): void {
    this._pieces.unshift(bytes);
    this._start -= bytes.length;
    this._size += bytes.length;
    while (this._size > this.capacity && this._pieces.length > 1) {
      this._size -= this._pieces.pop()!.length;
    }
  }

  private _pieces: Uint8Array[] = [];
  private _start = 0;
  private _size = 0;
}

/**
 * Where to cut the front of a part of a log so that it begins with a line: after the first line
 * feed, or, in a log with endless lines, where a UTF-8 character begins.
 */
export function lineStart(bytes: Uint8Array): number {
  const newline = bytes.indexOf(10);
  if (newline >= 0 && newline + 1 < bytes.length) {
    return newline + 1;
  }
  let place = 0;
  while (place < Math.min(4, bytes.length) && (bytes[place] & 0xc0) === 0x80) {
    place++;
  }
  return place;
}
