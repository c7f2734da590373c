import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import {
  closeIcon,
  copyIcon,
  downloadIcon,
  notebookIcon,
  refreshIcon,
  stopIcon
} from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Api, ApiError } from '../api';
import * as format from '../format';
import { RunsModel } from '../model';
import { CommandIDs, IRun, IRunsModel, isFinal } from '../tokens';
import { DOMAIN } from '../words';
import { apiOf } from './model';

/** What can be done with a run, as commands that take its id. */
export const actionsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'j2c-lab:actions',
  description: 'Commands that act on a run.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [ITranslator, IDefaultFileBrowser],
  activate: (
    app: JupyterFrontEnd,
    model: IRunsModel,
    translator: ITranslator | null,
    browser: IDefaultFileBrowser | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const actions = new Actions(app, apiOf(app), model as RunsModel, trans, browser);
    actions.register();
  }
};

class Actions {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _api: Api,
    private readonly _model: RunsModel,
    private readonly _trans: TranslationBundle,
    private readonly _browser: IDefaultFileBrowser | null
  ) {}

  register(): void {
    const trans = this._trans;
    const { commands } = this._app;
    const live = (run: IRun) => !isFinal(run.state);
    commands.addCommand(CommandIDs.cancel, {
      label: trans.__('Cancel'),
      icon: stopIcon,
      isEnabled: args => this._is(args, live),
      isVisible: args => this._is(args, live),
      execute: args => this._on(args, run => this._cancel(run))
    });
    commands.addCommand(CommandIDs.resume, {
      label: trans.__('Resume'),
      icon: refreshIcon,
      isVisible: args => this._is(args, run => ['interrupted', 'lost'].includes(run.state)),
      execute: args =>
        this._on(args, async run => this._model.accept(await this._api.resume(run.id)))
    });
    commands.addCommand(CommandIDs.fetch, {
      label: trans.__('Fetch outputs into the project'),
      icon: downloadIcon,
      isEnabled: args => this._is(args, run => run.outputs > 0),
      execute: args => this._on(args, run => this._fetch(run))
    });
    commands.addCommand(CommandIDs.openNotebook, {
      label: trans.__('Open executed notebook'),
      icon: notebookIcon,
      isVisible: args => this._is(args, run => run.notebook !== null),
      execute: args => this._on(args, run => this._openNotebook(run))
    });
    commands.addCommand(CommandIDs.copyLine, {
      label: trans.__('Copy as %j2c line'),
      icon: copyIcon,
      execute: args =>
        this._on(args, async run => {
          Clipboard.copyToSystem(run.line);
        })
    });
    commands.addCommand(CommandIDs.remove, {
      label: trans.__('Delete'),
      icon: closeIcon,
      isEnabled: args => this._is(args, run => isFinal(run.state) || run.state === 'interrupted'),
      execute: args => this._on(args, run => this._remove(run))
    });
  }

  private _is(args: ReadonlyPartialJSONObject, test: (run: IRun) => boolean): boolean {
    const run = this._model.find(String(args.id));
    return run !== undefined && test(run);
  }

  private async _on(
    args: ReadonlyPartialJSONObject,
    act: (run: IRun) => Promise<void>
  ): Promise<void> {
    const run = this._model.find(String(args.id));
    if (!run) {
      return;
    }
    try {
      await act(run);
    } catch (error) {
      const { message, remedy } = error as ApiError;
      Notification.error([message, remedy].filter(s => s).join('; '), { autoClose: 10000 });
    }
  }

  private async _cancel(run: IRun): Promise<void> {
    const result = await showDialog({
      title: this._trans.__('Cancel %1?', run.name),
      body: this._trans.__('Its process is ended; the outputs it has written are saved.'),
      buttons: [
        Dialog.cancelButton({ label: this._trans.__('Let it run') }),
        Dialog.warnButton({ label: this._trans.__('Cancel the run') })
      ]
    });
    if (result.button.accept) {
      this._model.accept(await this._api.cancel(run.id));
    }
  }

  private async _remove(run: IRun): Promise<void> {
    const result = await showDialog({
      title: this._trans.__('Delete %1?', run.name),
      body: this._trans.__('Its log and its saved outputs are deleted; fetched files stay.'),
      buttons: [
        Dialog.cancelButton({ label: this._trans.__('Keep') }),
        Dialog.warnButton({ label: this._trans.__('Delete') })
      ]
    });
    if (result.button.accept) {
      await this._api.remove(run.id);
      this._model.forget(run.id);
    }
  }

  private async _fetch(run: IRun): Promise<void> {
    const trans = this._trans;
    const id = Notification.emit(trans.__('Fetching outputs of %1', run.name), 'in-progress', {
      autoClose: false
    });
    try {
      const done = await this._api.fetch(run.id);
      Notification.update({
        id,
        message: trans._n(
          '%1 file (%2) fetched into %3',
          '%1 files (%2) fetched into %3',
          done.files,
          done.files,
          format.bytes(done.bytes),
          done.directory || '/'
        ),
        type: 'success',
        autoClose: 10000,
        actions: [
          {
            label: trans.__('Show'),
            callback: () => void this._browser?.model.cd(`/${done.directory}`)
          }
        ]
      });
    } catch (error) {
      Notification.dismiss(id);
      throw error;
    }
  }

  private async _openNotebook(run: IRun): Promise<void> {
    const done = await this._api.fetch(run.id);
    await this._app.commands.execute('docmanager:open', {
      path: PathExt.join(done.directory, run.notebook!)
    });
  }
}
