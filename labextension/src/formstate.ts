import { joinArgs, joinPairs, parsePairs, splitArgs } from './format';
import { IProfile, ISubmitRequest } from './tokens';

/** What stands in the fields of the form, as text. */
export interface IFormState {
  kind: 'script' | 'module' | 'notebook';
  entry: string;
  args: string;
  name: string;
  profile: string;
  gpus: string;
  cpus: string;
  memory: string;
  nodes: string;
  time: string;
  scheduler: string;
  queue: string;
  image: string;
  venv: string;
  env: string;
  inputs: string;
  outputs: string;
}

export type FormErrors = { [field in keyof IFormState]?: string };

/** Sentences for what can be wrong with a field, made by the caller in the user's language. */
export interface IFormWords {
  required: string;
  quote: string;
  number: string;
  memory: string;
  time: string;
  pairs: string;
}

export const EMPTY: IFormState = {
  kind: 'script',
  entry: '',
  args: '',
  name: '',
  profile: '',
  gpus: '',
  cpus: '',
  memory: '',
  nodes: '',
  time: '',
  scheduler: '',
  queue: '',
  image: '',
  venv: '',
  env: '',
  inputs: '',
  outputs: ''
};

/** Take the fields of a resource profile; what it does not say is cleared. */
export function withProfile(state: IFormState, profile: IProfile | undefined): IFormState {
  const text = (value: unknown) => (value === undefined || value === null ? '' : String(value));
  return {
    ...state,
    profile: profile?.name ?? '',
    gpus: text(profile?.gpus),
    cpus: text(profile?.cpus),
    memory: text(profile?.memory),
    nodes: text(profile?.nodes),
    time: text(profile?.time),
    scheduler: text(profile?.scheduler) || state.scheduler,
    queue: text(profile?.queue),
    image: text(profile?.image)
  };
}

export function kindOf(entry: string, kind: IFormState['kind']): IFormState['kind'] {
  if (entry.endsWith('.ipynb')) {
    return 'notebook';
  }
  return entry.endsWith('.py') || kind === 'notebook' ? 'script' : kind;
}

/** The request that the fields stand for, or what is wrong with them. */
export function toRequest(
  state: IFormState,
  words: IFormWords
): { request: ISubmitRequest; errors: FormErrors } {
  const errors: FormErrors = {};
  const attempt = <T>(field: keyof IFormState, message: string, make: () => T): T | undefined => {
    try {
      return make();
    } catch {
      errors[field] = message;
      return undefined;
    }
  };
  const integer = (field: keyof IFormState, least: number) =>
    attempt(field, words.number, () => {
      const text = state[field].trim();
      if (!text) {
        return undefined;
      }
      if (!/^\d{1,5}$/.test(text) || Number(text) < least) {
        throw new Error(text);
      }
      return Number(text);
    });
  const pattern = (field: keyof IFormState, expression: RegExp, message: string) => {
    const text = state[field].trim();
    if (text && !expression.test(text)) {
      errors[field] = message;
    }
    return text || undefined;
  };
  if (!state.entry.trim()) {
    errors.entry = words.required;
  }
  const request: ISubmitRequest = {
    entry: state.entry.trim(),
    kind: state.kind,
    args: attempt('args', words.quote, () => splitArgs(state.args)),
    name: state.name.trim() || undefined,
    gpus: integer('gpus', 0),
    cpus: integer('cpus', 1),
    memory: pattern('memory', /^\d+(\.\d+)?\s*[kmgt]?i?b?$/i, words.memory),
    nodes: integer('nodes', 1),
    time: pattern('time', /^(\d+|\d+:\d\d:\d\d|(\d+(\.\d+)?[smhd])+)$/i, words.time),
    scheduler: state.scheduler || undefined,
    queue: state.queue.trim() || undefined,
    image: state.image.trim() || undefined,
    venv: state.venv || undefined,
    profile: state.profile || undefined,
    env: attempt('env', words.pairs, () => parsePairs(state.env)),
    inputs: attempt('inputs', words.pairs, () => parsePairs(state.inputs)),
    outputs: state.outputs
      .split('\n')
      .map(line => line.trim())
      .filter(line => line)
  };
  return { request: JSON.parse(JSON.stringify(request)) as ISubmitRequest, errors };
}

/** The fields that stand for a request: the way back, for "run again with changes". */
export function fromRequest(request: ISubmitRequest): IFormState {
  const text = (value: unknown) => (value === undefined || value === null ? '' : String(value));
  return {
    ...EMPTY,
    kind: request.kind ?? kindOf(request.entry, 'script'),
    entry: request.entry,
    args: joinArgs(request.args ?? []),
    name: text(request.name),
    profile: text(request.profile),
    gpus: text(request.gpus || ''),
    cpus: text(request.cpus),
    memory: text(request.memory),
    nodes: text((request.nodes ?? 1) > 1 ? request.nodes : ''),
    time: text(request.time),
    scheduler: text(request.scheduler),
    queue: text(request.queue),
    image: text(request.image),
    venv: text(request.venv),
    env: joinPairs(request.env),
    inputs: joinPairs(request.inputs),
    outputs: (request.outputs ?? []).join('\n')
  };
}
