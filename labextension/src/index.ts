import { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { actionsPlugin } from './plugins/actions';
import { logsPlugin } from './plugins/logs';
import { modelPlugin } from './plugins/model';
import { panelPlugin } from './plugins/panel';
import { statusPlugin } from './plugins/status';
import { submitPlugin } from './plugins/submit';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  actionsPlugin,
  panelPlugin,
  submitPlugin,
  logsPlugin,
  statusPlugin
];

export default plugins;
export * from './tokens';
