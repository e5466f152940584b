import { Dialog } from "../components/Dialog";
import { groups } from "./keys";

/** The keys that work now. */
export function KeyHelp({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      {groups.value.map((group) => (
        <section key={group.title} class="keys">
          <h3>{group.title}</h3>
          <dl>
            {group.keys.map((key) => (
              <div key={key.key}>
                <dt>
                  {key.key.split(" ").map((each) => (
                    <kbd key={each}>{each}</kbd>
                  ))}
                </dt>
                <dd>{key.about}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
