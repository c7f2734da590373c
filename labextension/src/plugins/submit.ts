import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, ReactWidget, ToolbarButton } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { DocumentRegistry, IDocumentWidget } from '@jupyterlab/docregistry';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { FileEditor, IEditorTracker } from '@jupyterlab/fileeditor';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import React from 'react';
import { SubmitForm } from '../components/submitForm';
import { EMPTY, fromRequest, IFormState, kindOf } from '../formstate';
import { clusterIcon } from '../icons';
import { RunsModel } from '../model';
import { CommandIDs, IRunsModel } from '../tokens';
import { DOMAIN } from '../words';
import { apiOf } from './model';

/** "Run on cluster": a button, menu entries, and the form behind them. */
export const submitPlugin: JupyterFrontEndPlugin<void> = {
  id: 'j2c-lab:submit',
  description: 'Run notebooks and scripts on the cluster.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [
    ITranslator,
    ICommandPalette,
    ILauncher,
    INotebookTracker,
    IEditorTracker,
    IDefaultFileBrowser,
    IStateDB
  ],
  activate
};

function activate(
  app: JupyterFrontEnd,
  model: IRunsModel,
  translator: ITranslator | null,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  notebooks: INotebookTracker | null,
  editors: IEditorTracker | null,
  browser: IDefaultFileBrowser | null,
  state: IStateDB | null
): void {
  const trans = (translator ?? nullTranslator).load(DOMAIN);
  const { commands } = app;

  const open = (initial: IFormState) => {
    const form = React.createElement(SubmitForm, {
      api: apiOf(app),
      initial,
      trans,
      onSubmitted: run => {
        (model as RunsModel).accept(run);
        void commands.execute(CommandIDs.showPanel);
        void commands.execute(CommandIDs.openLog, { id: run.id });
        widget.dispose();
      },
      onCancel: () => widget.dispose(),
      onChange: form => void state?.save(memoryKey(form.entry), { ...form } as never),
      save: entry => saveDocument(entry, notebooks, editors)
    });
    const content = ReactWidget.create(form);
    content.addClass('j2c-SubmitWidget');
    const widget = new MainAreaWidget({ content });
    widget.id = `j2c-submit-${++forms}`;
    widget.title.label = trans.__('Run on cluster');
    widget.title.caption = initial.entry;
    widget.title.icon = clusterIcon;
    widget.title.closable = true;
    widget.toolbar.hide();
    app.shell.add(widget, 'main', { type: 'Run on cluster' });
    app.shell.activateById(widget.id);
  };

  commands.addCommand(CommandIDs.submit, {
    label: args => (args.isLauncher ? trans.__('Run on cluster') : trans.__('Run on Cluster…')),
    caption: trans.__('Run a notebook or script on the cluster'),
    icon: clusterIcon,
    execute: async args => {
      const path = (args.path as string) || currentPath(app, browser, Boolean(args.isContextMenu));
      const remembered = (await state?.fetch(memoryKey(path))) as unknown as IFormState | undefined;
      open({
        ...EMPTY,
        ...remembered,
        entry: path,
        kind: kindOf(path, 'script')
      });
    }
  });
  commands.addCommand(CommandIDs.again, {
    label: trans.__('Run again with changes…'),
    icon: clusterIcon,
    execute: async args => {
      const { request } = await apiOf(app).run(String(args.id));
      open(request ? fromRequest(request) : EMPTY);
    }
  });

  palette?.addItem({ command: CommandIDs.submit, category: trans.__('Cluster') });
  launcher?.add({
    command: CommandIDs.submit,
    // Lab's own category, by the name that Lab itself shows.
    category: (translator ?? nullTranslator).load('jupyterlab').__('Other'),
    rank: 5,
    args: { isLauncher: true }
  });
  for (const extension of ['.ipynb', '.py']) {
    app.contextMenu.addItem({
      command: CommandIDs.submit,
      args: { isContextMenu: true },
      selector: `.jp-DirListing-item[data-isdir="false"][title*="${extension}"]`,
      rank: 4
    });
  }
  const button = new RunButton(path => void commands.execute(CommandIDs.submit, { path }), {
    label: trans.__('Run on cluster'),
    tooltip: trans.__('Run this on the cluster')
  });
  app.docRegistry.addWidgetExtension('Notebook', button);
  app.docRegistry.addWidgetExtension('Editor', button);
}

let forms = 0;

/** The button in the toolbars of notebooks and Python files. */
class RunButton implements DocumentRegistry.IWidgetExtension<
  IDocumentWidget<never>,
  DocumentRegistry.IModel
> {
  constructor(
    private readonly _run: (path: string) => void,
    private readonly _words: { label: string; tooltip: string }
  ) {}

  createNew(
    panel: IDocumentWidget<never>,
    context: DocumentRegistry.IContext<DocumentRegistry.IModel>
  ): IDisposable | void {
    const widget = panel as unknown as NotebookPanel | IDocumentWidget<FileEditor>;
    if (!/\.(ipynb|py)$/.test(context.path)) {
      return;
    }
    const button = new ToolbarButton({
      className: 'j2c-RunButton',
      icon: clusterIcon,
      label: context.path.endsWith('.py') ? this._words.label : '',
      tooltip: this._words.tooltip,
      onClick: () => this._run(context.localPath)
    });
    const names = [...widget.toolbar.names()];
    const spacer = names.indexOf('spacer');
    widget.toolbar.insertItem(spacer < 0 ? names.length : spacer, 'j2cRun', button);
    return new DisposableDelegate(() => button.dispose());
  }
}

/** What the user is looking at: the selection in the file browser, or the open document. */
function currentPath(
  app: JupyterFrontEnd,
  browser: IDefaultFileBrowser | null,
  fromBrowser: boolean
): string {
  if (fromBrowser) {
    return browser?.selectedItems().next().value?.path ?? '';
  }
  const context = (app.shell.currentWidget as IDocumentWidget | null)?.context;
  const path = context?.localPath ?? '';
  return /\.(ipynb|py)$/.test(path) ? path : '';
}

async function saveDocument(
  entry: string,
  notebooks: INotebookTracker | null,
  editors: IEditorTracker | null
): Promise<void> {
  const folder = PathExt.dirname(entry);
  const save = async (widget: IDocumentWidget) => {
    const { context } = widget;
    // Everything open of the project is sent as it is shown.
    if (context.model.dirty && PathExt.dirname(context.localPath).startsWith(folder)) {
      await context.save();
    }
  };
  const open: IDocumentWidget[] = [];
  notebooks?.forEach(panel => open.push(panel));
  editors?.forEach(panel => open.push(panel));
  for (const widget of open) {
    await save(widget);
  }
}

/** Fields are remembered for each entry: a project's scripts want different resources. */
function memoryKey(entry: string): string {
  return `j2c-lab:form:${entry}`;
}
