import { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useMemo, useRef, useState } from 'react';
import { Api, ApiError } from '../api';
import { IFormState, IFormWords, kindOf, toRequest, withProfile } from '../formstate';
import { IConfig, IRun, ISubmitRequest } from '../tokens';
import { Field } from './field';
import { useSettled } from './hooks';
import { Preview } from './preview';

export interface ISubmitFormProps {
  api: Api;
  initial: IFormState;
  trans: TranslationBundle;
  onSubmitted: (run: IRun) => void;
  onCancel: () => void;
  /** Told of every change, to remember it for the project. */
  onChange: (state: IFormState) => void;
  /** Before anything is read: save documents that were changed. */
  save: (entry: string) => Promise<void>;
}

/** The form "Run on cluster": what to run and on what, beside what will be sent. */
export function SubmitForm(props: ISubmitFormProps): JSX.Element {
  const { api, trans } = props;
  const [state, setState] = useState(props.initial);
  const [config, setConfig] = useState<IConfig | null>(null);
  const [shown, setShown] = useState(false);
  const [failure, setFailure] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const key = useRef(crypto.randomUUID());
  const words = useMemo(() => formWords(trans), [trans]);
  const { request, errors } = toRequest(state, words);
  const valid = Object.keys(errors).length === 0;
  const settled = useSettled(valid ? previewKey(request) : '', 500);

  useEffect(() => {
    api.config().then(setConfig, setFailure);
  }, [api]);

  const change = (part: Partial<IFormState>) => {
    const next = { ...state, ...part };
    setState(next);
    props.onChange(next);
    // Another request must not be taken for the one whose answer was lost.
    key.current = crypto.randomUUID();
  };
  const submit = async () => {
    setShown(true);
    if (!valid || busy) {
      return;
    }
    setBusy(true);
    setFailure(null);
    try {
      await props.save(request.entry);
      props.onSubmitted(await api.submit(request, key.current));
    } catch (error) {
      setFailure(error as ApiError);
      setBusy(false);
    }
  };
  const field = (name: keyof IFormState) => ({
    value: state[name],
    error: shown || name !== 'entry' ? errors[name] : undefined,
    onChange: (value: string) => change({ [name]: value })
  });

  return (
    <form
      className="j2c-Submit"
      aria-label={trans.__('Run on cluster')}
      noValidate
      onSubmit={event => {
        event.preventDefault();
        void submit();
      }}
      onKeyDown={event => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          void submit();
        }
      }}
    >
      <div className="j2c-Submit-columns">
        <div className="j2c-Submit-fields">
          <h2>{trans.__('Run on cluster')}</h2>
          <div className="j2c-Row j2c-mod-entry">
            <Field
              label={trans.__('What to run')}
              placeholder="train.py"
              autoFocus
              {...field('entry')}
              onChange={entry => change({ entry, kind: kindOf(entry, state.kind) })}
            />
            <Field
              label={trans.__('Kind')}
              options={[
                { value: 'script', label: trans.__('Script') },
                { value: 'notebook', label: trans.__('Notebook') },
                { value: 'module', label: trans.__('Module (python -m)') }
              ]}
              {...field('kind')}
            />
          </div>
          <Field
            label={trans.__('Arguments')}
            placeholder="--lr 3e-4 --epochs 10"
            {...field('args')}
          />
          <Resources state={state} config={config} trans={trans} field={field} change={change} />
          <More state={state} config={config} trans={trans} field={field} />
        </div>
        <Preview api={api} request={settled ? JSON.parse(settled) : null} trans={trans} />
      </div>
      <footer className="j2c-Submit-footer">
        {failure && (
          <p className="j2c-Notice j2c-mod-error" role="alert">
            {[failure.message, failure.remedy].filter(s => s).join('; ')}
          </p>
        )}
        <span className="j2c-Submit-hint">{trans.__('Ctrl+Enter starts the run')}</span>
        <button type="button" className="j2c-Button" onClick={props.onCancel}>
          {trans.__('Close')}
        </button>
        <button type="submit" className="j2c-Button j2c-mod-accept" aria-disabled={busy}>
          {busy ? trans.__('Starting…') : trans.__('Run')}
        </button>
      </footer>
    </form>
  );
}

interface ISectionProps {
  state: IFormState;
  config: IConfig | null;
  trans: TranslationBundle;
  field: (name: keyof IFormState) => {
    value: string;
    error?: string;
    onChange: (value: string) => void;
  };
}

function Resources(
  props: ISectionProps & { change: (part: Partial<IFormState>) => void }
): JSX.Element {
  const { state, config, trans, field } = props;
  const profiles = config?.profiles ?? [];
  const limit = config?.max_gpus;
  return (
    <fieldset>
      <legend>{trans.__('Resources')}</legend>
      {profiles.length > 0 && (
        <Field
          label={trans.__('Profile')}
          value={state.profile}
          options={[
            { value: '', label: trans.__('Custom') },
            ...profiles.map(p => ({ value: p.name, label: p.name }))
          ]}
          onChange={name =>
            props.change(
              withProfile(
                state,
                profiles.find(p => p.name === name)
              )
            )
          }
        />
      )}
      <div className="j2c-Row">
        <Field
          label={trans.__('GPUs')}
          placeholder="0"
          numeric
          help={limit === null || limit === undefined ? undefined : trans.__('at most %1', limit)}
          {...field('gpus')}
        />
        <Field
          label={trans.__('CPUs')}
          placeholder={trans.__('default')}
          numeric
          {...field('cpus')}
        />
        <Field label={trans.__('Memory')} placeholder="16G" {...field('memory')} />
        <Field label={trans.__('Time limit')} placeholder="2h" {...field('time')} />
        <Field label={trans.__('Nodes')} placeholder="1" numeric {...field('nodes')} />
      </div>
    </fieldset>
  );
}

function More(props: ISectionProps): JSX.Element {
  const { state, config, trans, field } = props;
  const schedulers = config?.schedulers ?? [];
  const scheduler = state.scheduler || config?.default_scheduler;
  const used =
    state.name || state.queue || state.image || state.env || state.inputs || state.outputs;
  return (
    <details className="j2c-More" open={used ? true : undefined}>
      <summary>{trans.__('Environment, data and more')}</summary>
      <div className="j2c-Row">
        <Field
          label={trans.__('Python environment')}
          options={[
            { value: '', label: trans.__('That of the project') },
            ...(config?.environments ?? []).map(e => ({ value: e.prefix, label: e.name }))
          ]}
          {...field('venv')}
        />
        <Field label={trans.__('Name')} placeholder={state.entry} {...field('name')} />
      </div>
      <div className="j2c-Row">
        <Field
          label={trans.__('Scheduler')}
          options={[
            {
              value: '',
              label: config
                ? trans.__('Default (%1)', config.default_scheduler)
                : trans.__('Default')
            },
            ...schedulers.map(s => ({ value: s.name, label: s.name }))
          ]}
          {...field('scheduler')}
        />
        <Field
          label={trans.__('Queue')}
          suggestions={schedulers.find(s => s.name === scheduler)?.queues}
          {...field('queue')}
        />
        <Field label={trans.__('Image')} suggestions={config?.images} {...field('image')} />
      </div>
      <Field
        label={trans.__('Environment variables')}
        help={trans.__('NAME=VALUE, one a line. They are stored with the run: no secrets here.')}
        placeholder="WANDB_MODE=offline"
        rows={2}
        {...field('env')}
      />
      <Field
        label={trans.__('Inputs')}
        help={trans.__(
          'NAME=URL or path on the cluster, one a line; the code finds it in J2C_INPUT_NAME.'
        )}
        placeholder="DATA=s3://bucket/data.parquet"
        rows={2}
        {...field('inputs')}
      />
      <Field
        label={trans.__('Outputs')}
        help={trans.__('Patterns of files to bring back, one a line, besides J2C_OUTPUT_DIR.')}
        placeholder="checkpoints/*.pt"
        rows={2}
        {...field('outputs')}
      />
    </details>
  );
}

/** What the preview depends on: its own text, so that typing elsewhere does not ask again. */
function previewKey(request: ISubmitRequest): string {
  return JSON.stringify(request);
}

function formWords(trans: TranslationBundle): IFormWords {
  return {
    required: trans.__('Say what to run: a script, a notebook or a module.'),
    quote: trans.__('A quote is not closed.'),
    number: trans.__('A whole number, please.'),
    memory: trans.__('Write it like 16G or 512M.'),
    time: trans.__('Write it like 2h, 90m or 1h30m.'),
    pairs: trans.__('One NAME=VALUE a line, please.')
  };
}
