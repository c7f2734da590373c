import { TranslationBundle } from '@jupyterlab/translation';
import { RunState } from './tokens';

/** Name of the translation domain, and of the file with the Russian strings. */
export const DOMAIN = 'j2c_lab';

/** What a state is called to a person. */
export function stateName(state: RunState | string, trans: TranslationBundle): string {
  const names: { [state: string]: string } = {
    packing: trans.__('Packing'),
    submitting: trans.__('Submitting'),
    interrupted: trans.__('Interrupted'),
    queued: trans.__('Queued'),
    starting: trans.__('Starting'),
    fetching: trans.__('Fetching'),
    unpacking: trans.__('Unpacking'),
    running: trans.__('Running'),
    saving: trans.__('Saving outputs'),
    succeeded: trans.__('Succeeded'),
    failed: trans.__('Failed'),
    cancelled: trans.__('Cancelled'),
    lost: trans.__('Lost'),
    unknown: trans.__('Scheduler does not answer'),
    pack: trans.__('Packing'),
    upload: trans.__('Uploading'),
    submit: trans.__('Submitting')
  };
  return names[state] ?? state;
}
