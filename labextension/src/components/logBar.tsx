import { TranslationBundle } from '@jupyterlab/translation';
import {
  caretDownIcon,
  caretUpIcon,
  copyIcon,
  downloadIcon,
  LabIcon,
  stopIcon
} from '@jupyterlab/ui-components';
import React from 'react';
import * as format from '../format';
import { followIcon, stateLook } from '../icons';
import { Connection, IRun, isFinal } from '../tokens';
import { stateName } from '../words';
import { useNow } from './hooks';

export interface ILogBarProps {
  run: IRun | undefined;
  connection: Connection;
  ended: boolean;
  follow: boolean;
  rank: number;
  ranks: readonly number[];
  query: string;
  /** Index and count of the matches in what is loaded. */
  found: [number, number];
  size: number;
  download: string;
  trans: TranslationBundle;
  onFollow: () => void;
  onRank: (rank: number) => void;
  onQuery: (text: string) => void;
  onFind: (backwards: boolean) => void;
  onCopy: () => void;
  onCancel: () => void;
  onRetry: () => void;
}

/** What stands above a log: how the run goes, and what can be done with its log. */
export function LogBar(props: ILogBarProps): JSX.Element {
  const { run, trans, ranks } = props;
  const live = run !== undefined && !isFinal(run.state);
  const now = useNow(live);
  const look = stateLook(run?.state ?? 'unknown');
  return (
    <>
      <div className="j2c-LogBar" role="toolbar" aria-label={trans.__('Log')}>
        {run && (
          <span className={`j2c-LogBar-state j2c-mod-${look.group}`} role="status">
            <look.icon.react
              tag="span"
              className={`j2c-State j2c-mod-${look.group}`}
              elementSize="normal"
            />
            <strong>{stateName(run.state, trans)}</strong>
            <span>{format.duration(format.elapsed(run, now), trans)}</span>
          </span>
        )}
        {run?.reason && (
          <span className="j2c-LogBar-reason" title={run.reason}>
            {run.reason}
          </span>
        )}
        <span className="j2c-LogBar-space" />
        <span className="j2c-Search">
          <input
            type="search"
            className="j2c-Input"
            placeholder={trans.__('Search')}
            aria-label={trans.__('Search the log')}
            value={props.query}
            onChange={event => props.onQuery(event.target.value)}
            onKeyDown={event => {
              if (event.key === 'Enter') {
                props.onFind(!event.shiftKey);
              }
            }}
          />
          <span className="j2c-Search-count" role="status">
            {props.query
              ? props.found[1]
                ? `${props.found[0] + 1}/${props.found[1]}`
                : trans.__('none')
              : ''}
          </span>
          <Tool
            icon={caretUpIcon}
            label={trans.__('Previous match')}
            onClick={() => props.onFind(true)}
          />
          <Tool
            icon={caretDownIcon}
            label={trans.__('Next match')}
            onClick={() => props.onFind(false)}
          />
        </span>
        {ranks.length > 1 && (
          <select
            className="j2c-Input j2c-Rank"
            aria-label={trans.__('Rank')}
            value={props.rank}
            onChange={event => props.onRank(Number(event.target.value))}
          >
            {ranks.map(rank => (
              <option key={rank} value={rank}>
                {trans.__('rank %1', rank)}
              </option>
            ))}
          </select>
        )}
        <Tool
          icon={followIcon}
          label={trans.__('Follow the end')}
          pressed={props.follow}
          onClick={props.onFollow}
        />
        <Tool
          icon={copyIcon}
          label={trans.__('Copy selection, or all that is loaded')}
          onClick={props.onCopy}
        />
        <a
          className="j2c-IconButton"
          href={props.download}
          download
          title={trans.__('Download the whole log (%1)', format.bytes(props.size))}
          aria-label={trans.__('Download the whole log (%1)', format.bytes(props.size))}
        >
          <downloadIcon.react tag="span" elementSize="normal" />
        </a>
        {live && (
          <Tool icon={stopIcon} label={trans.__('Cancel the run')} onClick={props.onCancel} />
        )}
      </div>
      {props.connection === 'lost' && !props.ended && (
        <p className="j2c-Notice j2c-mod-warning" role="status">
          {trans.__('Connection lost. The run goes on; what it writes meanwhile will be shown.')}{' '}
          <button className="j2c-Link" onClick={props.onRetry}>
            {trans.__('Connect now')}
          </button>
        </p>
      )}
    </>
  );
}

function Tool(props: {
  icon: LabIcon;
  label: string;
  pressed?: boolean;
  onClick: () => void;
}): JSX.Element {
  return (
    <button
      className="j2c-IconButton"
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" elementSize="normal" />
    </button>
  );
}
