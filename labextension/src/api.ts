import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IConfig, IOutputFile, IPreview, IRun, IRunPage, ISubmitRequest } from './tokens';

/** An answer of the server that says what went wrong. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly remedy: string,
    readonly requestId: string
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** All requests to the server extension; one method for each endpoint. */
export class Api {
  constructor(readonly settings: ServerConnection.ISettings) {}

  config(): Promise<IConfig> {
    return this._json('config');
  }

  runs(query: {
    limit: number;
    cursor?: string | null;
    text?: string;
    group?: string;
  }): Promise<IRunPage> {
    const parameters = new URLSearchParams({ limit: String(query.limit) });
    for (const key of ['cursor', 'text', 'group'] as const) {
      const value = query[key];
      if (value) {
        parameters.set(key, value);
      }
    }
    return this._json(`runs?${parameters.toString()}`);
  }

  run(id: string): Promise<IRun & { request: ISubmitRequest | null }> {
    return this._json(`runs/${id}`);
  }

  /** With the same key again, the same run: a lost answer never makes a second run. */
  submit(request: ISubmitRequest, key: string): Promise<IRun> {
    return this._json('runs', 'POST', request, { 'Idempotency-Key': key });
  }

  preview(request: ISubmitRequest, signal: AbortSignal): Promise<IPreview> {
    return this._json('preview', 'POST', request, {}, signal);
  }

  cancel(id: string): Promise<IRun> {
    return this._json(`runs/${id}/cancel`, 'POST');
  }

  resume(id: string): Promise<IRun> {
    return this._json(`runs/${id}/resume`, 'POST');
  }

  async remove(id: string): Promise<void> {
    await this._request(`runs/${id}`, 'DELETE');
  }

  files(id: string): Promise<{ files: IOutputFile[] }> {
    return this._json(`runs/${id}/files`);
  }

  fetch(id: string): Promise<{ directory: string; files: number; bytes: number; skipped: number }> {
    return this._json(`runs/${id}/fetch`, 'POST');
  }

  /** Bytes of the log from `start` to `end`. */
  async log(
    id: string,
    start: number,
    end: number,
    attempt: number,
    rank: number
  ): Promise<Uint8Array> {
    const path = `runs/${id}/log?start=${start}&end=${end}&attempt=${attempt}&rank=${rank}`;
    const response = await this._request(path);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** Address for a link that the browser downloads from. */
  url(path: string): string {
    return URLExt.join(this.settings.baseUrl, 'j2c', path);
  }

  socketUrl(path: string): string {
    const url = URLExt.join(this.settings.wsUrl, 'j2c', path);
    if (!this.settings.appendToken || !this.settings.token) {
      return url;
    }
    const separator = url.includes('?') ? '&' : '?';
    return `${url}${separator}token=${encodeURIComponent(this.settings.token)}`;
  }

  private async _json<T>(
    path: string,
    method = 'GET',
    body?: unknown,
    headers: Record<string, string> = {},
    signal?: AbortSignal
  ): Promise<T> {
    const response = await this._request(path, method, body, headers, signal);
    return (await response.json()) as T;
  }

  private async _request(
    path: string,
    method = 'GET',
    body?: unknown,
    headers: Record<string, string> = {},
    signal?: AbortSignal
  ): Promise<Response> {
    const init: RequestInit = { method, headers, signal };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { ...headers, 'Content-Type': 'application/json' };
    }
    const response = await ServerConnection.makeRequest(this.url(path), init, this.settings);
    if (response.ok && !response.redirected) {
      return response;
    }
    throw await toError(response);
  }
}

async function toError(response: Response): Promise<ApiError> {
  let document: Record<string, string> = {};
  try {
    document = await response.json();
  } catch {
    // A proxy's page: the status says all that is known.
  }
  return new ApiError(
    response.status,
    document.code ?? 'http',
    document.message ?? `${response.status} ${response.statusText}`,
    document.remedy ?? '',
    document.request_id ?? ''
  );
}
