import { LabIcon } from '@jupyterlab/ui-components';
import cluster from '../style/icons/cluster.svg';
import follow from '../style/icons/follow.svg';
import log from '../style/icons/log.svg';
import more from '../style/icons/more.svg';
import active from '../style/icons/state-active.svg';
import cancelled from '../style/icons/state-cancelled.svg';
import failed from '../style/icons/state-failed.svg';
import lost from '../style/icons/state-lost.svg';
import queued from '../style/icons/state-queued.svg';
import succeeded from '../style/icons/state-succeeded.svg';
import { RunState } from './tokens';

const icon = (name: string, svgstr: string) => new LabIcon({ name: `j2c-lab:${name}`, svgstr });

export const clusterIcon = icon('cluster', cluster);
export const logIcon = icon('log', log);
export const moreIcon = icon('more', more);
export const followIcon = icon('follow', follow);

const activeIcon = icon('state-active', active);
const queuedIcon = icon('state-queued', queued);
const succeededIcon = icon('state-succeeded', succeeded);
const failedIcon = icon('state-failed', failed);
const cancelledIcon = icon('state-cancelled', cancelled);
const lostIcon = icon('state-lost', lost);

/** The look of a state: an icon, and the group that colours it. */
export function stateLook(state: RunState): { icon: LabIcon; group: string } {
  switch (state) {
    case 'succeeded':
      return { icon: succeededIcon, group: 'succeeded' };
    case 'failed':
      return { icon: failedIcon, group: 'failed' };
    case 'cancelled':
      return { icon: cancelledIcon, group: 'cancelled' };
    case 'lost':
    case 'interrupted':
    case 'unknown':
      return { icon: lostIcon, group: 'lost' };
    case 'queued':
      return { icon: queuedIcon, group: 'queued' };
    default:
      return { icon: activeIcon, group: 'active' };
  }
}
