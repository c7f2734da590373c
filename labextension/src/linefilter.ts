const NEWLINE = 10;

/** Takes lines with a prefix out of a stream of bytes, wherever the stream is cut into pieces. */
export class LineFilter {
  constructor(prefix: string) {
    this._prefix = new TextEncoder().encode(prefix);
  }

  /** The bytes to show; the beginning of a line that may still become one is kept back. */
  pass(bytes: Uint8Array): Uint8Array {
    const shown = new Uint8Array(bytes.length + this._prefix.length);
    let size = 0;
    for (const byte of bytes) {
      if (this._dropping) {
        if (byte === NEWLINE) {
          this._dropping = false;
          this._matched = 0;
        }
        continue;
      }
      if (this._matched >= 0) {
        if (byte === this._prefix[this._matched]) {
          this._matched++;
          this._dropping = this._matched === this._prefix.length;
          continue;
        }
        shown.set(this._prefix.subarray(0, this._matched), size);
        size += this._matched;
        this._matched = -1;
      }
      shown[size++] = byte;
      if (byte === NEWLINE) {
        this._matched = 0;
      }
    }
    return shown.subarray(0, size);
  }

  private readonly _prefix: Uint8Array;
  /** How much of the prefix this line has matched; -1 when it is another line. */
  private _matched = 0;
  private _dropping = false;
}
