import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, ReactWidget } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Menu } from '@lumino/widgets';
import React from 'react';
import { Panel } from '../components/panel';
import { clusterIcon } from '../icons';
import { CommandIDs, IRunsModel } from '../tokens';
import { DOMAIN } from '../words';

export const PANEL_ID = 'j2c-lab-panel';

/** The side panel with the runs. */
export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: 'j2c-lab:panel',
  description: 'The side panel with the runs on the cluster.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IRunsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const used = translator ?? nullTranslator;
    const trans = used.load(DOMAIN);
    const { commands, shell } = app;
    const execute = (command: string, id: string) => void commands.execute(command, { id });
    const openMenu = (id: string, x: number, y: number) => {
      const menu = new Menu({ commands });
      const items = [
        CommandIDs.openLog,
        CommandIDs.openNotebook,
        CommandIDs.fetch,
        '-',
        CommandIDs.again,
        CommandIDs.resume,
        CommandIDs.cancel,
        CommandIDs.copyLine,
        '-',
        CommandIDs.remove
      ];
      for (const command of items) {
        menu.addItem(command === '-' ? { type: 'separator' } : { command, args: { id } });
      }
      menu.aboutToClose.connect(() => {
        // After the command has run.
        setTimeout(() => menu.dispose(), 0);
      });
      menu.open(x, y);
    };
    const panel = ReactWidget.create(
      React.createElement(Panel, {
        model,
        trans,
        locale: used.languageCode || 'en',
        execute,
        menu: openMenu,
        submit: () => void commands.execute(CommandIDs.submit)
      })
    );
    panel.id = PANEL_ID;
    panel.addClass('j2c-Panel');
    panel.title.icon = clusterIcon;
    panel.title.caption = trans.__('Cluster runs');
    panel.node.setAttribute('role', 'region');
    panel.node.setAttribute('aria-label', trans.__('Cluster runs'));
    shell.add(panel, 'left', { rank: 350, type: 'Cluster runs' });
    restorer?.add(panel, PANEL_ID);

    commands.addCommand(CommandIDs.showPanel, {
      label: trans.__('Show Cluster Runs'),
      icon: clusterIcon,
      execute: () => shell.activateById(PANEL_ID)
    });
    palette?.addItem({ command: CommandIDs.showPanel, category: trans.__('Cluster') });
  }
};
