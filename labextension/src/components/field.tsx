import React, { useId } from 'react';

export interface IFieldProps {
  label: string;
  value: string;
  error?: string;
  help?: string;
  placeholder?: string;
  /** Rows of a text area; a single line if not given. */
  rows?: number;
  options?: { value: string; label: string }[];
  /** Offered while typing; anything else is allowed too. */
  suggestions?: string[];
  numeric?: boolean;
  autoFocus?: boolean;
  onChange: (value: string) => void;
}

/** A labelled field of the form, with its help or what is wrong with it. */
export function Field(props: IFieldProps): JSX.Element {
  const id = useId();
  const note = props.error || props.help;
  const common = {
    id,
    className: 'j2c-Input',
    value: props.value,
    placeholder: props.placeholder,
    autoFocus: props.autoFocus,
    'aria-invalid': props.error ? true : undefined,
    'aria-describedby': note ? `${id}-note` : undefined,
    onChange: (event: React.ChangeEvent<{ value: string }>) => props.onChange(event.target.value)
  };
  const { placeholder: _, ...selectProps } = common;
  return (
    <div className={`j2c-Field ${props.error ? 'j2c-mod-error' : ''}`}>
      <label htmlFor={id}>{props.label}</label>
      {props.options ? (
        <select {...selectProps}>
          {props.options.map(option => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      ) : props.rows ? (
        <textarea {...common} rows={props.rows} spellCheck={false} />
      ) : (
        <input
          {...common}
          type="text"
          spellCheck={false}
          autoComplete="off"
          inputMode={props.numeric ? 'numeric' : undefined}
          list={props.suggestions?.length ? `${id}-list` : undefined}
        />
      )}
      {props.suggestions?.length ? (
        <datalist id={`${id}-list`}>
          {props.suggestions.map(value => (
            <option key={value} value={value} />
          ))}
        </datalist>
      ) : null}
      {note && (
        <div id={`${id}-note`} className="j2c-Field-note" role={props.error ? 'alert' : undefined}>
          {note}
        </div>
      )}
    </div>
  );
}
