import './base.css';
import './panel.css';
import './submit.css';
import './log.css';
