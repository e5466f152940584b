/** The parts of a page: its head, panels, and figures at a glance. */

import type { ComponentChildren } from "preact";

interface HeadProps {
  title: ComponentChildren;
  /** What leads here: links to the pages above. */
  above?: ComponentChildren;
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

/** The head of a page: its only h1. */
export function PageHead({ title, above, actions, children }: HeadProps) {
  return (
    <header class="page-head">
      {above && <div class="above">{above}</div>}
      <div class="page-title">
        <h1>{title}</h1>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </header>
  );
}

interface PanelProps {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  /** No padding around the content: for tables that reach the edges. */
  flush?: boolean;
  children: ComponentChildren;
}

/** A part of a page with a heading of its own. */
export function Panel({ title, actions, flush, children }: PanelProps) {
  return (
    <section class={`panel${flush ? " flush" : ""}`}>
      {(title || actions) && (
        <div class="panel-head">
          {title && <h2>{title}</h2>}
          {actions && <div class="actions">{actions}</div>}
        </div>
      )}
      <div class="panel-body">{children}</div>
    </section>
  );
}

interface FigureProps {
  label: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  href?: string;
  tone?: "error" | "warn" | undefined;
}

/** One number that matters, with what it is. */
export function Figure({ label, value, note, href, tone }: FigureProps) {
  const content = (
    <>
      <span class="figure-label">{label}</span>
      <span class={`figure-value ${tone ?? ""}`}>{value}</span>
      {note && <span class="figure-note">{note}</span>}
    </>
  );
  return href ? (
    <a class="figure" href={href}>
      {content}
    </a>
  ) : (
    <div class="figure">{content}</div>
  );
}

/** Names and values, one below the other. */
export function KeyValue({ pairs }: { pairs: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="pairs">
      {pairs.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? <span class="nothing">–</span>}</dd>
        </div>
      ))}
    </dl>
  );
}
