"""The families of published models, those first that are more likely to be meant."""

from keras_transformers.pretrained.bart import BART, M2M_100, MBART, PEGASUS
from keras_transformers.pretrained.beit import BEIT
from keras_transformers.pretrained.bert import BERT, DISTILBERT
from keras_transformers.pretrained.clip import CLIP
from keras_transformers.pretrained.conditional_detr import CONDITIONAL_DETR
from keras_transformers.pretrained.deformable_detr import DEFORMABLE_DETR
from keras_transformers.pretrained.detr import DETR
from keras_transformers.pretrained.dinov2 import DINOV2, DINOV2_WITH_REGISTERS
from keras_transformers.pretrained.electra import ELECTRA
from keras_transformers.pretrained.gemma2 import GEMMA2
from keras_transformers.pretrained.gpt2 import GPT2
from keras_transformers.pretrained.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_transformers.pretrained.marian import MARIAN
from keras_transformers.pretrained.modernbert import MODERNBERT
from keras_transformers.pretrained.phi3 import PHI3
from keras_transformers.pretrained.roberta import ROBERTA, XLM_ROBERTA
from keras_transformers.pretrained.segformer import SEGFORMER
from keras_transformers.pretrained.siglip import SIGLIP
from keras_transformers.pretrained.swin import SWIN, SWINV2
from keras_transformers.pretrained.t5 import MT5, T5
from keras_transformers.pretrained.vit import DEIT, VIT
from keras_transformers.pretrained.vit_mae import VIT_MAE

ALL = (MARIAN, M2M_100, MBART, BART, PEGASUS, T5, MT5, BERT, DISTILBERT, ROBERTA, XLM_ROBERTA)
ALL += (ELECTRA, MODERNBERT, GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, PHI3)
ALL += (VIT, DEIT, DINOV2, DINOV2_WITH_REGISTERS, BEIT, SWIN, SWINV2, SEGFORMER, VIT_MAE, DETR)
ALL += (CONDITIONAL_DETR, DEFORMABLE_DETR, CLIP, SIGLIP)
FAMILIES = {family.name: family for family in ALL}
