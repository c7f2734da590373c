import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IThemeManager, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { logIcon } from '../icons';
import { LogViewer } from '../logviewer';
import { CommandIDs, IRunsModel } from '../tokens';
import { DOMAIN } from '../words';
import { apiOf } from './model';
import { SETTINGS_ID } from './status';

/** Logs of runs in tabs of the main area. */
export const logsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'j2c-lab:logs',
  description: 'Logs and metrics of runs, in tabs.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [ITranslator, ILayoutRestorer, IThemeManager, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    model: IRunsModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    registry: ISettingRegistry | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const tracker = new WidgetTracker<MainAreaWidget<LogViewer>>({ namespace: 'j2c-lab-logs' });
    let fontSize = 13;
    let screenReader = false;
    void registry?.load(SETTINGS_ID).then(settings => {
      const update = () => {
        fontSize = settings.get('logFontSize').composite as number;
        screenReader = settings.get('screenReader').composite as boolean;
        tracker.forEach(widget => widget.content.setFontSize(fontSize));
      };
      settings.changed.connect(update);
      update();
    });

    app.commands.addCommand(CommandIDs.openLog, {
      label: trans.__('Open log'),
      icon: logIcon,
      execute: args => {
        const id = String(args.id);
        const present = tracker.find(widget => widget.content.runId === id);
        if (present) {
          app.shell.activateById(present.id);
          return present;
        }
        const content = new LogViewer({
          runId: id,
          api: apiOf(app),
          model,
          trans,
          fontSize,
          screenReader,
          cancel: () => void app.commands.execute(CommandIDs.cancel, { id })
        });
        const widget = new MainAreaWidget({ content });
        widget.id = `j2c-log-${id}`;
        const name = model.find(id)?.name ?? id;
        widget.title.label = name;
        widget.title.caption = trans.__('Log of %1 (%2)', name, id);
        widget.title.icon = logIcon;
        widget.title.closable = true;
        widget.toolbar.hide();
        app.shell.add(widget, 'main', { type: 'Log' });
        void tracker.add(widget);
        return widget;
      }
    });

    themes?.themeChanged.connect(() => {
      // The new theme's variables are there once its style sheet is.
      requestAnimationFrame(() => tracker.forEach(widget => widget.content.updateTheme()));
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.openLog,
      args: widget => ({ id: widget.content.runId }),
      name: widget => widget.content.runId
    });
  }
};
