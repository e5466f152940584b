import { useEffect, useRef, useState } from "preact/hooks";
import { Loading } from "../../components";
import type { Catalogue, SqlEditor } from "./editor";

interface Props {
  /** The text is set when this changes: otherwise the editor has its own, which is newer while a person types. */
  sheet: string;
  text: string;
  catalogue: Catalogue;
  onChange: (text: string) => void;
  onRun: () => void;
  onReady: (editor: SqlEditor) => void;
}

/** The editor in a shadow tree of its own, loaded with the page. */
export function Editor({ sheet, text, catalogue, onChange, onRun, onReady }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<SqlEditor | null>(null);
  const [ready, setReady] = useState(false);
  const latest = useRef({ onChange, onRun, text });
  latest.current = { onChange, onRun, text };
  useEffect(() => {
    let gone = false;
    void import("./editor").then(({ makeEditor }) => {
      if (gone || !host.current) return;
      const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
      const frame = document.createElement("div");
      frame.style.height = "100%";
      root.append(frame);
      editor.current = makeEditor(frame, {
        root,
        text: latest.current.text,
        onChange: (changed) => latest.current.onChange(changed),
        onRun: () => latest.current.onRun(),
      });
      setReady(true);
      onReady(editor.current);
    });
    return () => {
      gone = true;
      editor.current?.destroy();
      host.current?.shadowRoot?.replaceChildren();
    };
  }, []);
  useEffect(() => {
    if (editor.current && editor.current.text() !== text) editor.current.setText(text);
  }, [sheet]);
  useEffect(() => editor.current?.setCatalogue(catalogue), [catalogue, ready]);
  return (
    <div class="editor-box">
      {!ready && <Loading what="Loading the editor" />}
      <div class="editor" ref={host} />
    </div>
  );
}
