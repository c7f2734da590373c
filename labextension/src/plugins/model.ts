import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Api } from '../api';
import { RunsModel } from '../model';
import { ISocket } from '../socket';
import { IRunsModel } from '../tokens';

let api: Api | null = null;

/** The one `Api` of this page. */
export function apiOf(app: JupyterFrontEnd): Api {
  api = api ?? new Api(app.serviceManager.serverSettings);
  return api;
}

/** Keeps the list of runs. */
export const modelPlugin: JupyterFrontEndPlugin<IRunsModel> = {
  id: 'j2c-lab:model',
  description: 'The runs of this user, kept up to date by the server.',
  autoStart: true,
  provides: IRunsModel,
  activate: (app: JupyterFrontEnd) => {
    const api = apiOf(app);
    const WebSocketType = api.settings.WebSocket;
    return new RunsModel(
      api,
      () => new WebSocketType(api.socketUrl('stream')) as unknown as ISocket
    );
  }
};
