import { TranslationBundle } from '@jupyterlab/translation';
import { addIcon } from '@jupyterlab/ui-components';
import React from 'react';
import { clusterIcon } from '../icons';
import { IRunsModel, isFinal, RunState } from '../tokens';
import { useSignal } from './hooks';
import { RunList } from './runList';
import { IRunActions } from './runRow';

export interface IPanelProps extends IRunActions {
  model: IRunsModel;
  locale: string;
  trans: TranslationBundle;
  submit: () => void;
}

/** The side panel: what runs, and the way to run something. */
export function Panel(props: IPanelProps): JSX.Element {
  const { model, trans } = props;
  useSignal(model.changed);
  const total = Object.values(model.counts).reduce((sum, n) => sum + n, 0);
  const filtered = model.filter.text !== '' || model.filter.group !== 'all';
  return (
    <div className="j2c-Panel-body">
      <header className="j2c-Panel-header">
        <h2>{trans.__('Cluster runs')}</h2>
        <button className="j2c-Button j2c-mod-accept" onClick={props.submit}>
          <addIcon.react tag="span" elementSize="normal" />
          {trans.__('New run')}
        </button>
      </header>
      {(total > 0 || filtered) && <Filter model={model} trans={trans} />}
      <Notice model={model} trans={trans} />
      {model.ready && total === 0 && !filtered ? (
        <Empty {...props} />
      ) : model.ready && model.runs.length === 0 ? (
        <p className="j2c-Panel-none">{trans.__('No run matches the filter.')}</p>
      ) : (
        <RunList {...props} />
      )}
    </div>
  );
}

function Filter(props: { model: IRunsModel; trans: TranslationBundle }): JSX.Element {
  const { model, trans } = props;
  const count = (test: (state: RunState) => boolean) =>
    Object.entries(model.counts).reduce((n, [s, c]) => (test(s as RunState) ? n + c : n), 0);
  const groups: [string, string, number][] = [
    ['all', trans.__('All'), count(() => true)],
    ['active', trans.__('Active'), count(state => !isFinal(state))],
    ['succeeded', trans.__('Done'), count(state => state === 'succeeded')],
    ['failed', trans.__('Failed'), count(state => isFinal(state) && state !== 'succeeded')]
  ];
  return (
    <div className="j2c-Filter">
      <input
        type="search"
        className="j2c-Input"
        placeholder={trans.__('Filter')}
        aria-label={trans.__('Filter runs')}
        value={model.filter.text}
        onChange={event => model.setFilter({ text: event.target.value })}
      />
      <div className="j2c-Chips" role="group" aria-label={trans.__('State')}>
        {groups.map(([group, label, n]) => (
          <button
            key={group}
            className="j2c-Chip"
            aria-pressed={model.filter.group === group}
            onClick={() => model.setFilter({ group })}
          >
            {label} <span className="j2c-Chip-count">{n}</span>
          </button>
        ))}
      </div>
    </div>
  );
}

function Notice(props: { model: IRunsModel; trans: TranslationBundle }): JSX.Element | null {
  const { model, trans } = props;
  if (model.connection === 'lost') {
    return (
      <p className="j2c-Notice j2c-mod-warning" role="status">
        {trans.__('The connection to the lab is lost; connecting again. Runs go on meanwhile.')}
      </p>
    );
  }
  if (model.error) {
    return (
      <p className="j2c-Notice j2c-mod-error" role="alert">
        {model.error}{' '}
        <button className="j2c-Link" onClick={() => void model.refresh()}>
          {trans.__('Try again')}
        </button>
      </p>
    );
  }
  return null;
}

function Empty(props: IPanelProps): JSX.Element {
  const { trans } = props;
  return (
    <div className="j2c-Empty">
      <clusterIcon.react tag="span" className="j2c-Empty-icon" />
      <h3>{trans.__('Run your code on the cluster')}</h3>
      <ol>
        <li>{trans.__('Open a notebook or a Python file.')}</li>
        <li>{trans.__('Press “Run on cluster” in its toolbar.')}</li>
        <li>{trans.__('See what will be sent, and start it: its log appears here.')}</li>
      </ol>
      <button className="j2c-Button j2c-mod-accept" onClick={props.submit}>
        {trans.__('Run on cluster…')}
      </button>
      <p>
        {trans.__('Or in a cell:')} <code>%j2c submit train.py</code>
      </p>
    </div>
  );
}

/** Icon of the panel's tab. */
export const panelIcon = clusterIcon;
