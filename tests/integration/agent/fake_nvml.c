/* A libnvidia-ml.so.1 with two GPUs whose answers a test sets: what nvidia-ml-py loads instead of the driver's. */
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, GPUS = 2 };

static struct gpu {
    const char *name, *uuid;
    int error, utilisation_error, mig_error;
    unsigned busy, mig;
} gpus[GPUS];
static int init_error;

void fake_reset(void) {
    struct gpu fresh[GPUS] = {
        {"NVIDIA H100 80GB HBM3", "GPU-11111111-0000-0000-0000-000000000000", 0, 0, 0, 0, 0},
        {"NVIDIA H100 80GB HBM3", "GPU-22222222-0000-0000-0000-000000000000", 0, 0, 0, 0, 0},
    };
    memcpy(gpus, fresh, sizeof gpus);
    init_error = OK;
}
void fake_init_error(int error) { init_error = error; }
void fake_error(int index, int error) { gpus[index].error = error; }
void fake_utilisation_error(int index, int error) { gpus[index].utilisation_error = error; }
void fake_busy(int index, unsigned percent) { gpus[index].busy = percent; }
void fake_mig(int index, unsigned mode, int error) { gpus[index].mig = mode; gpus[index].mig_error = error; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return init_error; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) { *gpu = &gpus[index]; return gpus[index].error; }
int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned size) { strncpy(name, gpu->name, size); return gpu->error; }
int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned size) { strncpy(uuid, gpu->uuid, size); return gpu->error; }
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long *total_free_used) {
    total_free_used[0] = 81559ULL << 20;
    return gpu->error;
}
int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
    *current = *pending = gpu->mig;
    return gpu->error ? gpu->error : gpu->mig_error;
}
int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned *gpu_memory) {
    gpu_memory[0] = gpu->busy;
    gpu_memory[1] = 0;
    return gpu->error ? gpu->error : gpu->utilisation_error;
}
const char *nvmlErrorString(int error) {
    switch (error) {
    case GPU_IS_LOST: return "GPU is lost";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}
