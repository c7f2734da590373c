import { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import React from 'react';
import * as format from '../format';
import { moreIcon, stateLook } from '../icons';
import { CommandIDs, IRun, isFinal } from '../tokens';
import { stateName } from '../words';

export interface IRunActions {
  execute: (command: string, id: string) => void;
  menu: (id: string, x: number, y: number) => void;
}

export interface IRunRowProps extends IRunActions {
  run: IRun;
  now: number;
  locale: string;
  trans: TranslationBundle;
  top: number;
  index: number;
  count: number;
  focusable: boolean;
}

/** One run: what it is, how it goes, and what can be done with it. */
export function RunRow(props: IRunRowProps): JSX.Element {
  const { run, now, trans, index } = props;
  const look = stateLook(run.state);
  const state = stateName(run.state, trans);
  const open = () => props.execute(CommandIDs.openLog, run.id);
  const menu = (event: React.MouseEvent) => {
    event.preventDefault();
    event.stopPropagation();
    const box = event.currentTarget.getBoundingClientRect();
    // From the keyboard there is no place of the pointer.
    const pointed = event.type === 'contextmenu' && event.clientX > 0;
    props.menu(run.id, pointed ? event.clientX : box.left, pointed ? event.clientY : box.bottom);
  };
  return (
    <div
      className="j2c-Run"
      role="listitem"
      aria-setsize={props.count}
      aria-posinset={index + 1}
      data-run={run.id}
      data-state={run.state}
      style={{ top: props.top }}
      onContextMenu={menu}
    >
      <button
        className="j2c-Run-open"
        tabIndex={props.focusable ? 0 : -1}
        data-index={index}
        onClick={open}
        aria-label={trans.__('%1, %2: open log', run.name, state)}
      >
        <look.icon.react
          tag="span"
          className={`j2c-State j2c-mod-${look.group}`}
          elementSize="normal"
        />
        <span className="j2c-Run-text">
          <span className="j2c-Run-title">
            <span className="j2c-Run-name" title={run.name}>
              {run.name}
            </span>
            <span className="j2c-Run-time">{format.duration(format.elapsed(run, now), trans)}</span>
          </span>
          <Status run={run} trans={trans} />
          <span className="j2c-Run-facts">
            {[
              format.when(run.created, now, props.locale),
              run.scheduler === 'local' ? '' : run.scheduler,
              format.resources(run.resources, trans),
              format.joinArgs(run.args)
            ]
              .filter(part => part)
              .join(' · ')}
          </span>
        </span>
      </button>
      <span className="j2c-Run-actions">
        {isFinal(run.state) ? (
          <Action
            icon={refreshIcon}
            label={trans.__('Run again')}
            onClick={() => props.execute(CommandIDs.again, run.id)}
          />
        ) : (
          <Action
            icon={stopIcon}
            label={trans.__('Cancel')}
            onClick={() => props.execute(CommandIDs.cancel, run.id)}
          />
        )}
        <Action icon={moreIcon} label={trans.__('More actions')} onClick={menu} popup />
      </span>
    </div>
  );
}

function Status(props: { run: IRun; trans: TranslationBundle }): JSX.Element {
  const { run, trans } = props;
  const stage = run.progress?.stage ?? run.state;
  const name = stateName(isFinal(run.state) ? run.state : stage, trans);
  const done = format.fraction(run);
  const group = stateLook(run.state).group;
  if (done !== null && !isFinal(run.state)) {
    const { bytes, total_bytes } = run.progress!;
    const amount = total_bytes
      ? `${format.bytes(bytes ?? 0)} / ${format.bytes(total_bytes)}`
      : `${Math.round(done * 100)} %`;
    return (
      <span className="j2c-Run-status">
        <span>{name}</span>
        <progress className="j2c-Bar" value={done} max={1} aria-label={name} />
        <span className="j2c-Run-amount">{amount}</span>
      </span>
    );
  }
  return (
    <span className={`j2c-Run-status j2c-mod-${group}`} title={run.reason || name}>
      {run.reason ? `${name}: ${run.reason}` : name}
    </span>
  );
}

function Action(props: {
  icon: LabIcon;
  label: string;
  popup?: boolean;
  onClick: (event: React.MouseEvent) => void;
}): JSX.Element {
  return (
    <button
      className="j2c-IconButton"
      tabIndex={-1}
      title={props.label}
      aria-label={props.label}
      aria-haspopup={props.popup ? 'menu' : undefined}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" elementSize="normal" />
    </button>
  );
}
