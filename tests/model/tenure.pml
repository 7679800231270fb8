/* The protocol of docs/protocol.md: one root, two candidates, two workers, discrete time. docs/model.md says what is left out. */
#include "switches.pml"
#include "database.pml"
#include "replicas.pml"
#include "world.pml"

init {
    byte i;
    atomic {
        do :: i < ROWS -> row[i].own = NOBODY; i++ :: else -> break od;
        i = 0; row[0].att = 1; hb[0] = D; hb[1] = D; sil[0] = D; sil[1] = D;
        run Leader(0); run Leader(1); run Worker(0); run Worker(1); run World()
    }
}
