import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification, ReactWidget } from '@jupyterlab/apputils';
import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import React from 'react';
import { StatusItem } from '../components/statusItem';
import { apiOf } from './model';
import { Api } from '../api';
import { clusterIcon, stateLook } from '../icons';
import { CommandIDs, IRun, IRunHappening, IRunsModel, isFinal } from '../tokens';
import { DOMAIN, stateName } from '../words';

export const SETTINGS_ID = 'j2c-lab:plugin';

/** Says what runs: in the status bar, in the list of running sessions, in notifications. */
export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: SETTINGS_ID,
  description: 'Settings, notifications, status bar and running sessions of cluster runs.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [ITranslator, ISettingRegistry, IStatusBar, IRunningSessionManagers],
  activate: (
    app: JupyterFrontEnd,
    model: IRunsModel,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null,
    running: IRunningSessionManagers | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands } = app;
    let wanted = 'all';
    void registry?.load(SETTINGS_ID).then(settings => {
      const update = () => {
        wanted = settings.get('notifications').composite as string;
      };
      settings.changed.connect(update);
      update();
    });
    model.happened.connect((_, happening) => {
      const { run, what } = happening;
      const failed = run.state === 'failed' || run.state === 'lost';
      if (
        wanted === 'all' ||
        (wanted === 'end' && what === 'ended') ||
        (wanted === 'failures' && failed)
      ) {
        notify(happening, trans, commands);
      }
    });

    const item = ReactWidget.create(
      React.createElement(StatusItem, {
        model,
        trans,
        onClick: () => void commands.execute(CommandIDs.showPanel)
      })
    );
    item.addClass('j2c-StatusItem');
    statusBar?.registerStatusItem('j2c-lab:status', { item, align: 'left', rank: 10 });
    running?.add(new RunningManager(model, apiOf(app), commands, trans));
  }
};

const startNotes = new Map<string, string>();

function notify(
  { run, what }: IRunHappening,
  trans: TranslationBundle,
  commands: CommandRegistry
): void {
  const open = {
    label: trans.__('Open log'),
    callback: () => void commands.execute(CommandIDs.openLog, { id: run.id })
  };
  if (what === 'started') {
    const id = Notification.info(trans.__('%1 is running on the cluster', run.name), {
      autoClose: 4000,
      actions: [open]
    });
    startNotes.set(run.id, id);
    return;
  }
  // The end says all that the start said.
  Notification.dismiss(startNotes.get(run.id) ?? '');
  startNotes.delete(run.id);
  const text = `${run.name}: ${stateName(run.state, trans)}${run.reason ? `, ${run.reason}` : ''}`;
  const actions = [open];
  if (run.outputs) {
    actions.push({
      label: trans.__('Fetch outputs'),
      callback: () => void commands.execute(CommandIDs.fetch, { id: run.id })
    });
  }
  if (run.state === 'succeeded') {
    Notification.success(text, { autoClose: 8000, actions });
  } else if (run.state === 'cancelled') {
    Notification.warning(text, { autoClose: 5000, actions });
  } else {
    Notification.error(text, { autoClose: false, actions });
  }
}

/** Runs in Lab's own list of what runs. */
class RunningManager implements IRunningSessions.IManager {
  constructor(
    private readonly _model: IRunsModel,
    private readonly _api: Api,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {
    this.name = _trans.__('Cluster runs');
    this.shutdownLabel = _trans.__('Cancel the run');
    this.shutdownAllLabel = _trans.__('Cancel all');
    this.shutdownAllConfirmationText = _trans.__('Cancel all runs on the cluster?');
    _model.changed.connect(() => this.runningChanged.emit());
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly runningChanged = new Signal<this, void>(this);

  running(): IRunningSessions.IRunningItem[] {
    return this._active().map(run => new RunningItem(run, this._api, this._commands, this._trans));
  }

  shutdownAll(): void {
    this._active().forEach(run => void this._api.cancel(run.id));
  }

  refreshRunning(): void {
    void this._model.refresh();
  }

  private _active(): IRun[] {
    return this._model.runs.filter(run => !isFinal(run.state));
  }
}

class RunningItem implements IRunningSessions.IRunningItem {
  constructor(
    private readonly _run: IRun,
    private readonly _api: Api,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {}

  open(): void {
    void this._commands.execute(CommandIDs.openLog, { id: this._run.id });
  }

  shutdown(): void {
    void this._api.cancel(this._run.id);
  }

  icon(): LabIcon {
    return stateLook(this._run.state).icon ?? clusterIcon;
  }

  label(): string {
    return this._run.name;
  }

  detail(): string {
    return stateName(this._run.state, this._trans);
  }
}
