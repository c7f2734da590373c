import { TranslationBundle } from '@jupyterlab/translation';
import { copyIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useRef, useState } from 'react';
import { Api } from '../api';
import * as format from '../format';
import { IPreview, ISubmitRequest } from '../tokens';

export interface IPreviewProps {
  api: Api;
  /** Null while the fields are not complete. */
  request: ISubmitRequest | null;
  trans: TranslationBundle;
}

/** What would be sent, before it is: bytes new and reused, what is big, what is left out. */
export function Preview(props: IPreviewProps): JSX.Element {
  const { api, request, trans } = props;
  const [preview, setPreview] = useState<IPreview | null>(null);
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  const key = request ? JSON.stringify(request) : '';
  const last = useRef('');

  useEffect(() => {
    if (!key || key === last.current) {
      return;
    }
    const abort = new AbortController();
    setBusy(true);
    api
      .preview(JSON.parse(key), abort.signal)
      .then(
        answer => {
          last.current = key;
          setPreview(answer);
          setError('');
        },
        reason => {
          if (!abort.signal.aborted) {
            setError([reason.message, reason.remedy].filter(s => s).join('; '));
          }
        }
      )
      .finally(() => {
        if (!abort.signal.aborted) {
          setBusy(false);
        }
      });
    return () => abort.abort();
  }, [key]);

  return (
    <section className="j2c-Preview" aria-label={trans.__('What will be sent')} aria-busy={busy}>
      <h3>
        {trans.__('What will be sent')}
        {busy && <span className="j2c-Spinner" role="status" aria-label={trans.__('Looking…')} />}
      </h3>
      {error ? (
        <p className="j2c-Notice j2c-mod-error" role="alert">
          {error}
        </p>
      ) : preview ? (
        <Content preview={preview} trans={trans} />
      ) : (
        <p className="j2c-Preview-none">
          {request
            ? trans.__('Looking at the project and its packages…')
            : trans.__('Say what to run, and this shows what the cluster lacks.')}
        </p>
      )}
    </section>
  );
}

function Content(props: { preview: IPreview; trans: TranslationBundle }): JSX.Element {
  const { preview, trans } = props;
  const total = preview.send.bytes + preview.reuse.bytes;
  const share = total ? preview.send.bytes / total : 0;
  const biggest = Math.max(1, ...preview.biggest.map(item => item.bytes));
  return (
    <>
      <div className="j2c-Preview-sums">
        <div>
          <strong>{format.bytes(preview.send.bytes)}</strong>
          <span>
            {trans._n(
              'new, in %1 layer',
              'new, in %1 layers',
              preview.send.layers,
              preview.send.layers
            )}
          </span>
        </div>
        <div>
          <strong>{format.bytes(preview.reuse.bytes)}</strong>
          <span>
            {trans._n(
              'there already, in %1 layer',
              'there already, in %1 layers',
              preview.reuse.layers,
              preview.reuse.layers
            )}
          </span>
        </div>
      </div>
      <div className="j2c-Share" aria-hidden="true">
        <span style={{ width: `${Math.max(share * 100, preview.send.bytes ? 1 : 0)}%` }} />
      </div>
      {preview.warnings.map(warning => (
        <p key={warning.message} className="j2c-Notice j2c-mod-warning">
          {warning.message}
          {warning.remedy && `; ${warning.remedy}`}
        </p>
      ))}
      {preview.biggest.length > 0 && (
        <>
          <h4>{trans.__('Biggest')}</h4>
          <ul className="j2c-Biggest">
            {preview.biggest.map(item => (
              <li key={item.name} title={item.sent ? trans.__('new') : trans.__('there already')}>
                <span className="j2c-Biggest-name">{item.name}</span>
                <span className="j2c-Biggest-bar" aria-hidden="true">
                  <span
                    className={item.sent ? 'j2c-mod-sent' : ''}
                    style={{ width: `${(item.bytes / biggest) * 100}%` }}
                  />
                </span>
                <span className="j2c-Biggest-size">{format.bytes(item.bytes)}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      <details className="j2c-LeftOut">
        <summary>
          {trans._n(
            '%1 thing left out',
            '%1 things left out',
            preview.left_out.length,
            preview.left_out.length
          )}
        </summary>
        <ul>
          {preview.left_out.map(item => (
            <li key={item.path}>
              <code>{item.path}</code> <span>{item.rule}</span>
            </li>
          ))}
        </ul>
      </details>
      <Line line={preview.line} trans={trans} />
    </>
  );
}

function Line(props: { line: string; trans: TranslationBundle }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const { trans } = props;
  const copy = () => {
    void navigator.clipboard.writeText(props.line).then(() => setCopied(true));
  };
  return (
    <div className="j2c-Line">
      <h4>{trans.__('The same in a cell')}</h4>
      <div>
        <code>{props.line}</code>
        <button
          className="j2c-IconButton"
          title={trans.__('Copy')}
          aria-label={trans.__('Copy')}
          onClick={copy}
        >
          <copyIcon.react tag="span" elementSize="normal" />
        </button>
      </div>
      <span role="status">{copied ? trans.__('Copied') : ''}</span>
    </div>
  );
}
