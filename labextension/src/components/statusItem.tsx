import { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { clusterIcon } from '../icons';
import { IRunsModel, isFinal, RunState } from '../tokens';
import { useSignal } from './hooks';

/** The number of runs under way, in the status bar; a click shows the panel. */
export function StatusItem(props: {
  model: IRunsModel;
  trans: TranslationBundle;
  onClick: () => void;
}): JSX.Element {
  const { model, trans } = props;
  useSignal(model.changed);
  const active = Object.entries(model.counts)
    .filter(([state]) => !isFinal(state as RunState))
    .reduce((sum, [, n]) => sum + n, 0);
  const label = trans._n('%1 run on the cluster', '%1 runs on the cluster', active, active);
  return (
    <button
      className="j2c-StatusItem-button"
      title={label}
      aria-label={label}
      onClick={props.onClick}
    >
      <clusterIcon.react tag="span" elementSize="normal" />
      <span aria-hidden="true">{active}</span>
    </button>
  );
}
