import { ReadonlyJSONObject, Token } from '@lumino/coreutils';
import { ISignal } from '@lumino/signaling';

/** States of a run, as `docs/events.md` lists them. */
export type RunState =
  | 'packing'
  | 'submitting'
  | 'interrupted'
  | 'queued'
  | 'starting'
  | 'fetching'
  | 'unpacking'
  | 'running'
  | 'saving'
  | 'succeeded'
  | 'failed'
  | 'cancelled'
  | 'lost'
  | 'unknown';

/** How far the stage at work is; totals are absent until they are known. */
export interface IProgress {
  stage: string;
  bytes?: number;
  total_bytes?: number;
  files?: number;
  total_files?: number;
  what?: string;
}

/** What a run asks for, for each node; null leaves it to the scheduler. */
export interface IResources {
  gpus: number;
  cpus: number | null;
  /** Bytes. */
  memory: number | null;
  nodes: number;
  /** Seconds. */
  time: number | null;
}

export interface IEntry {
  kind: 'script' | 'module' | 'notebook' | 'cell';
  target: string;
}

/** A run, as `GET /j2c/runs/<id>` gives it; times in seconds since the epoch. */
export interface IRun {
  id: string;
  name: string;
  state: RunState;
  /** One line, empty when there is nothing to explain. */
  reason: string;
  project: string;
  created: number;
  started: number | null;
  finished: number | null;
  exit_code: number | null;
  signal: number | null;
  attempt: number | null;
  scheduler: string;
  queue: string | null;
  resources: IResources;
  entry: IEntry;
  args: string[];
  /** Number of files to fetch. */
  outputs: number;
  expected_start: number | null;
  progress: IProgress | null;
  /** Path of the executed notebook among the outputs. */
  notebook: string | null;
  /** The `%j2c` line that submits it again. */
  line: string;
}

/** What is sent to submit a run, paths relative to the server's root. */
export interface ISubmitRequest {
  entry: string;
  kind?: 'script' | 'module' | 'notebook';
  args?: string[];
  name?: string;
  project?: string;
  venv?: string;
  gpus?: number;
  cpus?: number;
  memory?: string;
  nodes?: number;
  time?: string;
  image?: string;
  queue?: string;
  scheduler?: string;
  profile?: string;
  env?: { [name: string]: string };
  inputs?: { [name: string]: string };
  outputs?: string[];
}

export interface IRunPage {
  runs: IRun[];
  /** Where the next page begins, or null. */
  cursor: string | null;
  /** Number of runs in each state, the filter apart. */
  counts: { [state: string]: number };
}

export interface IAmount {
  layers: number;
  bytes: number;
}

export interface ILeftOut {
  path: string;
  rule: string;
  size: number;
}

/** What would be sent. */
export interface IPreview {
  send: IAmount;
  reuse: IAmount;
  biggest: { name: string; bytes: number; sent: boolean }[];
  left_out: ILeftOut[];
  warnings: { message: string; remedy: string }[];
  project: string;
  line: string;
}

export interface IProfile {
  name: string;
  gpus?: number;
  cpus?: number;
  memory?: string;
  nodes?: number;
  time?: string;
  image?: string;
  queue?: string;
  scheduler?: string;
}

export interface IConfig {
  version: string;
  schedulers: { name: string; queues: string[] }[];
  default_scheduler: string;
  profiles: IProfile[];
  images: string[];
  max_gpus: number | null;
  environments: { name: string; prefix: string }[];
}

export interface IOutputFile {
  path: string;
  size: number;
  sha256: string;
}

/** Whether the server's stream of changes is heard. */
export type Connection = 'connecting' | 'connected' | 'lost';

export interface IFilter {
  text: string;
  /** `all`, `active`, `succeeded` or `failed`. */
  group: string;
}

/** All that the front end knows of runs; views listen and render. */
export interface IRunsModel {
  /** The loaded runs of the filter, newest first. */
  readonly runs: readonly IRun[];
  readonly counts: { readonly [state: string]: number };
  readonly filter: IFilter;
  readonly connection: Connection;
  /** False until the first page has come. */
  readonly ready: boolean;
  readonly hasMore: boolean;
  readonly error: string;
  readonly changed: ISignal<IRunsModel, void>;
  /** A run began or reached its end while we watched. */
  readonly happened: ISignal<IRunsModel, IRunHappening>;
  find(id: string): IRun | undefined;
  setFilter(filter: Partial<IFilter>): void;
  loadMore(): Promise<void>;
  refresh(): Promise<void>;
}

export interface IRunHappening {
  run: IRun;
  what: 'started' | 'ended';
}

export const IRunsModel = new Token<IRunsModel>(
  'j2c-lab:IRunsModel',
  'The runs of this user, kept up to date by the server.'
);

/** The command ids that other extensions may call. */
export namespace CommandIDs {
  export const submit = 'j2c-lab:submit';
  export const showPanel = 'j2c-lab:show-panel';
  export const openLog = 'j2c-lab:open-log';
  export const cancel = 'j2c-lab:cancel';
  export const resume = 'j2c-lab:resume';
  export const again = 'j2c-lab:run-again';
  export const fetch = 'j2c-lab:fetch-outputs';
  export const openNotebook = 'j2c-lab:open-executed-notebook';
  export const copyLine = 'j2c-lab:copy-line';
  export const remove = 'j2c-lab:delete';
}

/** Arguments of the commands that act on a run. */
export interface IRunArgs extends ReadonlyJSONObject {
  id: string;
}

export const FINAL_STATES: readonly RunState[] = ['succeeded', 'failed', 'cancelled', 'lost'];

export function isFinal(state: RunState): boolean {
  return FINAL_STATES.includes(state);
}
