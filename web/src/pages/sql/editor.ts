/** The only module that knows CodeMirror: an editor of Spark SQL that completes names of the catalogue. */

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, toggleComment } from "@codemirror/commands";
import { schemaCompletionSource, keywordCompletionSource, SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
  placeholder,
  tooltips,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { FUNCTIONS, KEYWORDS, TYPES } from "./words";

const SparkSQL = SQLDialect.define({
  keywords: KEYWORDS,
  types: TYPES,
  builtin: FUNCTIONS,
  identifierQuotes: "`",
  doubleQuotedStrings: true,
  backslashEscapes: true,
  slashComments: false,
  hashComments: false,
  operatorChars: "*+-%<>!=&|^~/",
});

// Variables of the style sheet reach into the editor's shadow tree, so that it follows light and dark.
const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--accent)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": {
    backgroundColor: "color-mix(in srgb, var(--accent-soft) 45%, transparent)",
  },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent)",
  },
  ".cm-placeholder": { color: "var(--muted)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    border: "1px solid var(--line-strong)",
    borderRadius: "6px",
    boxShadow: "var(--shadow)",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-text)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.75", fontStyle: "normal", marginLeft: "12px" },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.standard(tags.name), tags.function(tags.variableName)], color: "var(--series-6)" },
  { tag: tags.typeName, color: "var(--series-3)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.operator, color: "var(--muted)" },
]);

/** The tables that are completed, with the names and types of their columns. */
export type Catalogue = Record<string, { name: string; type: string }[]>;

interface Options {
  /** A shadow tree: there the styles of the editor are no inline styles, which the pages do not allow. */
  root: ShadowRoot;
  text: string;
  onChange: (text: string) => void;
  onRun: () => void;
}

export interface SqlEditor {
  text: () => string;
  /** What is selected; the whole text if nothing is. */
  chosen: () => string;
  setText: (text: string) => void;
  insert: (text: string) => void;
  setCatalogue: (catalogue: Catalogue) => void;
  focus: () => void;
  destroy: () => void;
}

function language(catalogue: Catalogue) {
  const schema: Record<string, { label: string; detail: string; type: string }[]> = {};
  for (const [name, columns] of Object.entries(catalogue)) {
    schema[name] = columns.map((column) => ({ label: column.name, detail: column.type, type: "property" }));
  }
  const all = Object.values(catalogue).flat();
  const names = new Map(all.map((column) => [column.name, column.type]));
  const support = sql({ dialect: SparkSQL, upperCaseKeywords: true });
  const ofSchema = schemaCompletionSource({ dialect: SparkSQL, schema });
  const keywords = keywordCompletionSource(SparkSQL, true);
  // Behind a point stands a name.
  const ofKeywords: typeof keywords = (context) => (context.matchBefore(/\.\w*/) ? null : keywords(context));
  const ofColumns = (context: Parameters<typeof ofSchema>[0]) => {
    const word = context.matchBefore(/[A-Za-z_][\w]*/);
    if (!word || context.matchBefore(/\.\w*/)) return null;
    const mentioned = context.state.doc.toString();
    const own = Object.entries(catalogue).filter(([name]) => mentioned.includes(name));
    const columns = own.length ? own.flatMap(([, each]) => each) : [...names].map(([name, type]) => ({ name, type }));
    const seen = new Map(columns.map((column) => [column.name, column.type]));
    return {
      from: word.from,
      options: [...seen].map(([label, detail]) => ({ label, detail, type: "property", boost: 1 })),
      validFor: /^\w*$/,
    };
  };
  return [support.language, autocompletion({ override: [ofSchema, ofColumns, ofKeywords], icons: false })];
}

export function makeEditor(parent: HTMLElement, { root, text, onChange, onRun }: Options): SqlEditor {
  const completed = new Compartment();
  const view = new EditorView({
    parent,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(
          keymap.of([
            { key: "Mod-Enter", run: () => (onRun(), true) },
            { key: "Mod-/", run: toggleComment },
          ]),
        ),
        lineNumbers(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        tooltips({ position: "absolute" }),
        placeholder("SELECT … FROM catalog.schema.table"),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "SQL statement" }),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        completed.of(language({})),
        syntaxHighlighting(colours),
        look,
        EditorView.updateListener.of((update) => update.docChanged && onChange(update.state.doc.toString())),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    chosen: () => {
      const { from, to } = view.state.selection.main;
      return from === to ? view.state.doc.toString() : view.state.sliceDoc(from, to);
    },
    setText: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    insert: (piece) => {
      view.dispatch(view.state.replaceSelection(piece));
      view.focus();
    },
    setCatalogue: (catalogue) => view.dispatch({ effects: completed.reconfigure(language(catalogue)) }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
