import { useRef, useState } from "preact/hooks";
import { Button } from "../../components";
import { bytes } from "../../format/numbers";

/** Where a file is dropped, or chosen by a button. */
export function DropBox({ file, onFile }: { file: File | null; onFile: (file: File) => void }) {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  return (
    <div
      class={over ? "drop over" : "drop"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        const dropped = event.dataTransfer?.files[0];
        if (dropped) onFile(dropped);
      }}
    >
      <p class="drop-title">
        {file ? (
          <>
            {file.name} <span class="hint">{bytes(file.size)}</span>
          </>
        ) : (
          "Drop a file here"
        )}
      </p>
      <input
        ref={input}
        type="file"
        class="visually-hidden"
        aria-label="File to load"
        tabIndex={-1}
        onChange={(event) => {
          const chosen = event.currentTarget.files?.[0];
          if (chosen) onFile(chosen);
          event.currentTarget.value = "";
        }}
      />
      <Button onClick={() => input.current?.click()}>{file ? "Choose another file" : "Choose a file"}</Button>
      <p class="hint">CSV, JSON, NDJSON or Parquet, plain or packed with gzip or zstd</p>
    </div>
  );
}
