import { useState } from "preact/hooks";
import { savedOf } from "../app/saved";
import { go, place, to } from "../app/router";
import { Button } from "./Button";
import { Dialog } from "./Dialog";
import { TextField } from "./Field";
import { Menu } from "./Menu";
import { EmptyState } from "./States";

interface Props {
  /** Names the kind in the storage of the browser. */
  kind: string;
  /** The page that a saved query belongs to. */
  path: string;
  /** Parameters of the address that are not saved, such as a cursor. */
  leaveOut?: readonly string[];
}

/** Saves the address of a view by a name, and opens, renames and deletes saved ones. Kept in this browser. */
export function SavedViews({ kind, path, leaveOut = [] }: Props) {
  const { all, save, rename, remove } = savedOf(kind);
  const [open, setOpen] = useState<"save" | "manage" | null>(null);
  const current = () => {
    const query = new URLSearchParams(place.value.query);
    for (const name of leaveOut) query.delete(name);
    return query.toString();
  };
  return (
    <>
      <Menu
        label="Saved"
        items={[
          { label: "Save this search…", run: () => setOpen("save") },
          ...all.value.map((each) => ({
            label: each.name,
            href: to(path) + (each.query ? `?${each.query}` : ""),
          })),
          ...(all.value.length ? [{ label: "Rename or delete…", run: () => setOpen("manage") }] : []),
        ]}
      />
      {open === "save" && (
        <SaveDialog
          taken={all.value.map((each) => each.name)}
          onClose={() => setOpen(null)}
          onSave={(name) => {
            save(name, current());
            setOpen(null);
          }}
        />
      )}
      {open === "manage" && (
        <Dialog title="Saved searches" onClose={() => setOpen(null)}>
          {all.value.length === 0 && <EmptyState title="None is left" />}
          <ul class="stack">
            {all.value.map((each) => (
              <SavedRow
                key={each.name}
                name={each.name}
                onOpen={() => {
                  setOpen(null);
                  go(to(path) + (each.query ? `?${each.query}` : ""));
                }}
                onRename={(name) => rename(each.name, name)}
                onRemove={() => remove(each.name)}
              />
            ))}
          </ul>
        </Dialog>
      )}
    </>
  );
}

interface SaveProps {
  taken: readonly string[];
  onSave: (name: string) => void;
  onClose: () => void;
}

function SaveDialog({ taken, onSave, onClose }: SaveProps) {
  const [name, setName] = useState("");
  return (
    <Dialog title="Save this search" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) onSave(name.trim());
        }}
      >
        <TextField
          label="Name"
          value={name}
          onInput={setName}
          required
          hint={taken.includes(name.trim()) ? "Replaces the search of that name." : "Kept in this browser."}
        />
        <div>
          <Button kind="primary" type="submit">
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface RowProps {
  name: string;
  onOpen: () => void;
  onRename: (name: string) => void;
  onRemove: () => void;
}

function SavedRow({ name, onOpen, onRename, onRemove }: RowProps) {
  const [typed, setTyped] = useState(name);
  return (
    <li class="saved-row">
      <TextField label={`Name of ${name}`} hideLabel value={typed} onInput={setTyped} />
      {typed.trim() && typed.trim() !== name ? (
        <Button onClick={() => onRename(typed.trim())}>Rename</Button>
      ) : (
        <Button onClick={onOpen}>Open</Button>
      )}
      <Button kind="danger" aria-label={`Delete ${name}`} onClick={onRemove}>
        Delete
      </Button>
    </li>
  );
}
